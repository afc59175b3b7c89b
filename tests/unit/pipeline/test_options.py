"""What options mean, and the errors for those that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren.pipeline.errors import PipelineError
from warren.pipeline.segments.errors import BadOption, DataLoss
from warren.pipeline.segments.log import Contents, QueueRef
from warren.pipeline.segments.offsets import (
    EARLIEST,
    LATEST,
    OffsetAtTime,
    check_names,
    checked_start,
    parse_offsets,
    parse_time,
)
from warren.pipeline.segments.reading import Loss
from warren.pipeline.sink.options import NAMES as WRITING
from warren.pipeline.sink.options import read_options
from warren.pipeline.source.options import NAMES as READING
from warren.pipeline.source.options import parse_options

GOOD = {"path": "/data", "subscribe": "a, b"}


def test_defaults_are_those_of_kafka() -> None:
    batch, stream = parse_options(GOOD, streaming=False), parse_options(GOOD, streaming=True)
    assert (batch.start, batch.end, stream.start) == (EARLIEST, LATEST, LATEST)
    assert (batch.vhost, batch.names, batch.fail_on_data_loss, batch.columns.headers, batch.columns.body) == (
        "/", ("a", "b"), True, True, True,
    )  # fmt: skip


def test_names_of_options_may_be_in_any_case() -> None:
    options = parse_options({**GOOD, "STARTINGOFFSETS": "latest", "minpartitions": "3"}, streaming=False)
    assert (options.start, options.min_partitions) == (LATEST, 3)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"startingOffset": "1"}, r"unknown option 'startingOffset' to read: did you mean startingOffsets\?"),
        ({"zzz": "1"}, "unknown option 'zzz' to read: there are path, url"),
        ({"url": "http://h"}, "either the option path, a data directory, or url"),
        ({"path": None}, "either the option path, a data directory, or url"),
        ({"subscribe": None}, "either the option subscribe, names of queues, or subscribePattern"),
        ({"subscribe": " , "}, "the option subscribe names no queue"),
        ({"subscribe": None, "subscribePattern": "("}, r"subscribePattern '\(' is no regular expression"),
        ({"startingOffsets": "first"}, "startingOffsets must be earliest, latest, a number or JSON such as"),
        ({"startingOffsets": '{"a": '}, "startingOffsets must be earliest, latest, a number or JSON such as"),
        ({"startingOffsets": "[1]"}, "startingOffsets must be earliest, latest, a number or JSON such as"),
        ({"startingOffsets": '{"a": "1"}'}, "startingOffsets has \"1\" for 'a': give an offset"),
        ({"startingOffsets": '{"a": true}'}, "startingOffsets has true for 'a': give an offset"),
        ({"startingOffsets": '{"a": -3}'}, "startingOffsets has -3 for 'a': give an offset"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"a": -2}'}, "endingOffsets cannot be earliest"),
        (
            {"startingTimestamp": "soon"},
            "startingTimestamp must be milliseconds since 1970 or a time such as",
        ),
        ({"startingTimestamp": "5", "startingOffsets": "latest"}, "startingOffsets cannot be given beside"),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": "{}"},
            "ByTimestamp cannot be given beside",
        ),
        ({"endingOffsetsByTimestamp": "5"}, "endingOffsetsByTimestamp must be JSON such as"),
        (
            {"endingOffsetsByTimestamp": '{"a": "soon"}'},
            "endingOffsetsByTimestamp for 'a' must be milliseconds",
        ),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay needs minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "5 min", "minOffsetsPerTrigger": "9"}, "maxTriggerDelay must be a time such as"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "9, above maxOffsetsPerTrigger, which is 8",
        ),
        ({"maxBytesPerTrigger": "1k"}, "maxBytesPerTrigger must be a number above 0"),
        ({"minPartitions": "0"}, "minPartitions must be a number above 0, not: 0"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger must be a number above 0, not: many"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false, not: maybe"),
        ({"reference": "me"}, "the option reference needs url"),
    ],
)
def test_wrong_option_is_named(changes: dict[str, str | None], told: str) -> None:
    given = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    with pytest.raises(BadOption, match=told):
        parse_options(given, streaming=False)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("routing_key", "routingKey"), ("ROUTINGKEYS", "routingKey"), ("dedup", "deduplicate")],
)
def test_unknown_option_of_a_write_is_named_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(PipelineError, match=rf"unknown option '{name}' to write: did you mean {meant}\?"):
        read_options({"amqp": "amqp://h", name: "x"})


def test_options_of_a_write_may_be_in_any_case_and_among_those_of_spark() -> None:
    given = {"AMQP": "amqp://h", "routingkey": "k", "checkpointLocation": "/c", "Exchange": "e"}
    options = read_options(given)
    assert (options.routing_key, options.exchange) == ("k", "e")


def test_readme_has_every_option() -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text()
    spark = text[text.index("## Spark") : text.index("## Settings")]
    assert [name for name in (*READING.values(), *WRITING.values()) if f"`{name}`" not in spark] == []


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_stream_has_no_end(name: str) -> None:
    with pytest.raises(BadOption, match=f"the option {name} cannot be given in a stream"):
        parse_options({**GOOD, name: "latest"}, streaming=True)


def test_offsets_of_other_queues_than_those_read_are_refused() -> None:
    places = parse_offsets("startingOffsets", '{"a": 1, "c": 2}')
    with pytest.raises(BadOption, match="startingOffsets lacks b: give an offset for each"):
        check_names("startingOffsets", places, ["a", "b", "c"])
    with pytest.raises(BadOption, match="startingOffsets has c, which is not subscribed to"):
        check_names("startingOffsets", places, ["a"])


@pytest.mark.parametrize(
    "text",
    ["1700000000123", "2023-11-14T22:13:20.123Z", "2023-11-14 22:13:20.123", "2023-11-14T23:13:20.123+01:00"],
)
def test_times_are_milliseconds_or_iso_8601(text: str) -> None:
    assert parse_time("startingTimestamp", text) == OffsetAtTime(1_700_000_000_123)


def stream(first: int, end: int) -> Contents:
    return Contents(QueueRef("/", "s", "stream"), first, end, ())


@pytest.mark.parametrize("offset", [5, 7, 9])
def test_start_within_a_stream_is_taken_as_it_is(offset: int) -> None:
    held = stream(5, 9)
    assert checked_start(held, offset, Loss(held.queue, fail=True)) == offset


@pytest.mark.parametrize(
    ("offset", "told"),
    [(2, "offsets 2 to 4 of stream 's' are gone"), (11, "offset 11 of stream 's' is behind its end, 9")],
)
def test_start_outside_a_stream_is_loss_or_told_and_earliest(
    offset: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    held = stream(5, 9)
    with pytest.raises(DataLoss, match=f"{told}.*failOnDataLoss"):
        checked_start(held, offset, Loss(held.queue, fail=True))
    assert checked_start(held, offset, Loss(held.queue, fail=False)) == 5
    assert told in caplog.text


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("15 m", 900), ("2H", 7200)])
def test_delay_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    given = {**GOOD, "minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    assert parse_options(given, streaming=True).limits.delay_s == seconds


def test_plain_number_is_the_offset_of_the_one_queue() -> None:
    assert parse_offsets("startingOffsets", " 42 ") == 42
    check_names("startingOffsets", 42, ["a"])
    with pytest.raises(BadOption, match=r"startingOffsets is 42, but 2 queues are read: .*JSON"):
        check_names("startingOffsets", 42, ["a", "b"])


def test_times_are_given_for_each_queue() -> None:
    given = {**GOOD, "startingOffsetsByTimestamp": '{"a": 5, "b": "1970-01-01T00:00:01Z"}'}
    assert parse_options(given, streaming=False).start == {"a": OffsetAtTime(5), "b": OffsetAtTime(1000)}
    with pytest.raises(BadOption, match="startingOffsetsByTimestamp lacks b: give a time"):
        check_names("startingOffsets", {"a": OffsetAtTime(5)}, ["a", "b"])
