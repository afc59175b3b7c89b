"""What the options of a command become for the data source, and which contradict each other."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from warren.pipeline.errors import UsageError
from warren.pipeline.jobs import inputs
from warren.pipeline.jobs.numbers import positive, span


def source(*words: str) -> inputs.JobInput:
    parser = argparse.ArgumentParser(exit_on_error=False)
    inputs.add_arguments(parser)
    return inputs.source_of(parser.parse_args(words))


def options(*words: str) -> dict[str, str]:
    return inputs.reader_options(source(*words), headers=True, body=False)


def test_options_of_a_path() -> None:
    assert options("--path", "/data", "--queue", "a", "b", "--queue", "c", "--vhost", "v") == {
        "path": "/data", "vhost": "v", "subscribe": "a,b,c", "includeHeaders": "true", "includeBody": "false",
        "failOnDataLoss": "true",
    }  # fmt: skip


def test_path_is_absolute_for_workers_elsewhere() -> None:
    assert options("--path", "d", "--queue", "a")["path"] == str(Path("d").absolute())
    assert options("--path", "file:///d", "--queue", "a")["path"] == "file:///d"


def test_options_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARREN_PASSWORD", "secret")
    found = options("--url", "http://h:1", "--user", "u", "--pattern", "o.*", "--allow-data-loss")
    wanted = {"url": "http://h:1", "user": "u", "password": "secret", "subscribePattern": "o.*"}
    assert found.items() >= {**wanted, "failOnDataLoss": "false"}.items()


def test_name_with_a_comma_becomes_a_pattern() -> None:
    assert options("--path", "d", "--queue", "a,b", "c")["subscribePattern"] == r"a,b|c"


def test_number_is_an_offset_of_each_queue() -> None:
    found = options("--path", "d", "--queue", "a", "b", "--from-offset", "5", "--to-offset", "latest")
    assert json.loads(found["startingOffsets"]) == {"a": 5, "b": 5}
    assert found["endingOffsets"] == "latest"


@pytest.mark.parametrize("text", ["2026-03-01T10:00:00", "2026-03-01T11:00:00+01:00", "1772359200000"])
def test_time_is_milliseconds_or_iso_in_utc_unless_it_has_a_zone(text: str) -> None:
    found = options("--path", "d", "--queue", "a", "--since", text, "--until", text)
    assert found["startingTimestamp"] == found["endingTimestamp"] == "1772359200000"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--path", "d"], "--queue"),
        (["--path", "d", "--queue", "a", "--pattern", "b"], "exclude each other"),
        (["--path", "d", "--pattern", "("], "--pattern .* is no regular expression"),
        (["--path", "d", "--queue", "a", "--from-offset", "soon"], "--from-offset is neither"),
        (["--path", "d", "--queue", "a", "--to-offset", '{"a": "x"}'], "--to-offset must be a JSON object"),
        (["--path", "d", "--pattern", "a", "--from-offset", "5"], "needs --queue"),
        (["--path", "d", "--queue", "a", "--from-offset", "5", "--since", "0"], "exclude each other"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(words: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        options(*words)


@pytest.mark.parametrize("words", [[], ["--path", "a", "--url", "b"], ["--path", "a", "--since", "noon"]])
def test_parser_refuses_what_it_can(words: list[str]) -> None:
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        source(*words)


def test_archive_may_be_read_without_naming_queues() -> None:
    assert source("--archive", "a") == inputs.JobInput(archive="a")


@pytest.mark.parametrize(
    ("text", "wanted"), [("5minutes", "5 minutes"), ("1 hour", "1 hour"), ("90 second", "90 seconds")]
)
def test_spans_are_written_as_spark_does(text: str, wanted: str) -> None:
    assert span(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "-1", "x"])
def test_numbers_above_0(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        positive(text)
    with pytest.raises(argparse.ArgumentTypeError):
        span(f"{text} minutes")
