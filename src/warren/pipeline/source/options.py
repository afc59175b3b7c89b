"""The options of a read, named as those of Spark's Kafka source, and checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from pyspark.sql.types import StructType

from warren.client.uri import Uri, parse_uri
from warren.pipeline.option_names import canonical, names_of
from warren.pipeline.segments.decode import OPEN_END
from warren.pipeline.segments.errors import BadOption
from warren.pipeline.segments.files import FileLog
from warren.pipeline.segments.http import HttpLog
from warren.pipeline.segments.log import SegmentLog
from warren.pipeline.segments.offsets import EARLIEST, LATEST, Places, parse_offsets, parse_time, parse_times
from warren.pipeline.source.columns import Columns

NAMES = names_of(
    "path", "url", "user", "password", "vhost", "subscribe", "subscribePattern", "startingOffsets",
    "endingOffsets", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp", "minOffset", "maxOffset", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "maxBytesPerTrigger", "minPartitions", "failOnDataLoss", "includeHeaders",
    "includeBody", "reference", "consume", "amqp",
)  # fmt: skip
"""All options of a read."""

CONSUMING = (
    "consume", "amqp", "subscribe", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "includeHeaders",
    "includeBody",
)  # fmt: skip
HELD_MAX = 10_000  # messages that a consuming query holds unacked, unless options say otherwise
HELD_BYTES_MAX = 64 << 20  # likewise
FLAGS = {"true": True, "false": False}
OFFSET_MAX = OPEN_END - 1
DELAY_SECONDS = 900.0  # the default of Spark's Kafka source, too
UNITS_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
DURATION = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d)")
INTERNAL = "amq."  # a pattern does not match queues whose names begin so


@dataclass(frozen=True, kw_only=True)
class ReadLimits:
    """How much one batch of a streaming query has; 0 is no limit."""

    offsets_max: int = 0
    bytes_max: int = 0
    offsets_min: int = 0  # a batch waits until there are so many,
    delay_s: float = 0.0  # but no longer than this since the last batch


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What to read, and how."""

    log: SegmentLog
    vhost: str
    names: tuple[str, ...]  # the queues to read; empty: those that match `pattern`
    pattern: str
    start: Places
    end: Places  # of a batch; a streaming query has no end
    limits: ReadLimits  # of each batch of a streaming query
    min_partitions: int  # 0: as many as the size of the data suggests
    fail_on_data_loss: bool
    columns: Columns
    reference: str  # the name under which the broker shows how far a query is; empty: none
    min_offset: int  # lower offsets are not read, of any queue; that they are gone is no data loss
    max_offset: int  # higher ones likewise

    def queue_names(self) -> list[str]:
        """The queues to read now; those that match a pattern are sorted."""
        if self.names:
            return list(self.names)
        return sorted(queue.name for queue in self.log.queues(self.vhost) if self.subscribes_to(queue.name))

    def subscribes_to(self, name: str) -> bool:
        """Whether a queue of this name is to be read."""
        if self.names:
            return name in self.names
        return not name.startswith(INTERNAL) and re.fullmatch(self.pattern, name) is not None


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """What to consume, and how."""

    uri: Uri
    names: tuple[str, ...]
    count_max: int  # messages held for a batch at most
    bytes_max: int  # of their bodies, about
    columns: Columns


OPTIONS_OF_TABLES = (
    "Spark gives those of CREATE TABLE to no query of a Python source; use CREATE TEMPORARY VIEW v "
    "USING warren OPTIONS (…), or SELECT … FROM t WITH (…)"
)
AnyOptions = TypeVar("AnyOptions", ReadOptions, ConsumeOptions)


def consumes(given: Mapping[str, str]) -> bool:
    options = _named(given)
    return _flag(options, "consume", default="false")


def parse_consume_options(given: Mapping[str, str]) -> ConsumeOptions:
    options = _named(given)
    _expect_absent(options, *(name for name in NAMES.values() if name not in CONSUMING), beside="consume")
    if "amqp" not in options:
        raise BadOption("to consume, option amqp must say where: amqp://user:password@host:5672/vhost")
    try:
        uri = parse_uri(options["amqp"])
    except ValueError as error:
        raise BadOption(f"option amqp: {error}") from None
    return ConsumeOptions(
        uri=uri,
        names=_subscription(options)[0],
        count_max=_number(options, "maxOffsetsPerTrigger") or HELD_MAX,
        bytes_max=_number(options, "maxBytesPerTrigger") or HELD_BYTES_MAX,
        columns=_columns(options),
    )


def parse_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a batch or, if `streaming`, of a query: by default a query starts at the end."""
    if not given:
        raise BadOption(f"no options: {OPTIONS_OF_TABLES}")
    options = _named(given)
    if not streaming and _flag(options, "consume", default="false"):
        raise BadOption("the option consume is for readStream: what is read in batch stays in its queue")
    if "amqp" in options:
        raise BadOption(
            "the option amqp is for consuming, with the option consume; to read, give path or url"
        )
    names, pattern = _subscription(options)
    reference = options.get("reference", "")
    if reference and "url" not in options:
        raise BadOption("the option reference needs url, since the broker remembers it")
    if streaming:
        _expect_absent(
            options, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "minOffset", "maxOffset"
        )
    return ReadOptions(
        log=_log(options),
        vhost=options.get("vhost", "/"),
        names=names,
        pattern=pattern,
        start=_places(options, "starting", LATEST if streaming else EARLIEST),
        end=_ending(options),
        limits=_limits(options),
        min_partitions=_number(options, "minPartitions"),
        fail_on_data_loss=_flag(options, "failOnDataLoss"),
        columns=_columns(options),
        reference=reference,
        min_offset=_offset(options, "minOffset", 0),
        max_offset=_offset(options, "maxOffset", OFFSET_MAX),
    )


def narrowed(options: AnyOptions, schema: StructType) -> AnyOptions:
    """The options, narrowed to the columns of the schema."""
    return replace(options, columns=options.columns.of(schema))


def _named(given: Mapping[str, str]) -> dict[str, str]:
    return canonical(given, NAMES, purpose="to read", error=BadOption)


def _log(options: Mapping[str, str]) -> SegmentLog:
    path, url = options.get("path"), options.get("url")
    if (path is None) is (url is None):
        raise BadOption("give either the option path, a data directory, or url, such as http://host:15672")
    if path is not None:
        return FileLog(path.removeprefix("file://"))
    assert url is not None
    return HttpLog(url, options.get("user", "guest"), options.get("password", "guest"))


def _subscription(options: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    names, pattern = options.get("subscribe"), options.get("subscribePattern")
    if (names is None) is (pattern is None):
        raise BadOption("give either the option subscribe, names of queues, or subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadOption(f"subscribePattern '{pattern}' is no regular expression: {error}") from None
        return (), pattern
    assert names is not None
    found = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not found:
        raise BadOption("the option subscribe names no queue")
    return found, ""


def _places(options: Mapping[str, str], which: str, default: int) -> Places:
    offsets, time, times = f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    if time in options:
        _expect_absent(options, offsets, times, beside=time)
        return parse_time(time, options[time])
    if times in options:
        _expect_absent(options, offsets, beside=times)
        return parse_times(times, options[times])
    return parse_offsets(offsets, options[offsets]) if offsets in options else default


def _ending(options: Mapping[str, str]) -> Places:
    end = _places(options, "ending", LATEST)
    if end == EARLIEST or (isinstance(end, dict) and EARLIEST in end.values()):
        raise BadOption("endingOffsets cannot be earliest: nothing would be read")
    return end


def _expect_absent(options: Mapping[str, str], *names: str, beside: str = "") -> None:
    for name in names:
        if name in options:
            why = f"beside {beside}" if beside else "in a stream, which has no end"
            raise BadOption(f"the option {name} cannot be given {why}")


def _columns(options: Mapping[str, str]) -> Columns:
    return Columns(headers=_flag(options, "includeHeaders"), body=_flag(options, "includeBody"))


def _limits(options: Mapping[str, str]) -> ReadLimits:
    least, most = _number(options, "minOffsetsPerTrigger"), _number(options, "maxOffsetsPerTrigger")
    if most and least > most:
        raise BadOption(f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}")
    if "maxTriggerDelay" in options and not least:
        raise BadOption("the option maxTriggerDelay needs minOffsetsPerTrigger: there is nothing to wait for")
    return ReadLimits(
        offsets_max=most,
        bytes_max=_number(options, "maxBytesPerTrigger"),
        offsets_min=least,
        delay_s=_duration(options, "maxTriggerDelay", DELAY_SECONDS),
    )


def _duration(options: Mapping[str, str], name: str, default: float) -> float:
    """The option's value in seconds."""
    if name not in options:
        return default
    found = DURATION.fullmatch(options[name].strip().lower())
    if found is None:
        raise BadOption(f"{name} must be a time such as 500ms, 30s, 15m or 1h, not: {options[name]}")
    return int(found[1]) * UNITS_SECONDS[found[2]]


def _number(options: Mapping[str, str], name: str) -> int:
    """The option's value; 0 if it is not given."""
    text = options.get(name)
    if text is None:
        return 0
    if not text.strip().isdecimal() or int(text) == 0:
        raise BadOption(f"{name} must be a number above 0, not: {text}")
    return int(text)


def _offset(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default)).strip()
    if not text.isdecimal():
        raise BadOption(f"{name} must be an offset, a number from 0 on, not: {text}")
    return min(int(text), OFFSET_MAX)


def _flag(options: Mapping[str, str], name: str, *, default: str = "true") -> bool:
    flag = FLAGS.get(options.get(name, default).strip().lower())
    if flag is None:
        raise BadOption(f"{name} must be true or false, not: {options[name]}")
    return flag
