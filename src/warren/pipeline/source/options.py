"""The options of a read, in Kafka's words, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from warren.pipeline.option_names import canonical, names_of
from warren.pipeline.segments.decode import OPEN_END
from warren.pipeline.segments.errors import BadOption
from warren.pipeline.segments.files import FileLog
from warren.pipeline.segments.http import HttpLog
from warren.pipeline.segments.log import Log
from warren.pipeline.segments.offsets import EARLIEST, LATEST, Places, parse_offsets, parse_time

NAMES = names_of(
    "path", "url", "user", "password", "vhost", "subscribe", "subscribePattern", "startingOffsets",
    "endingOffsets", "startingTimestamp", "endingTimestamp", "maxOffsetsPerTrigger", "minPartitions",
    "failOnDataLoss", "includeHeaders", "includeBody", "reference", "minOffset", "maxOffset",
)  # fmt: skip
"""All there are to read."""

FLAGS = {"true": True, "false": False}
OFFSET_MAX = OPEN_END - 1
INTERNAL = "amq."  # queues that a pattern does not mean


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """`names` are the queues to read; if there are none, those that match the `pattern`. Offsets below
    `min_offset` or above `max_offset` are not wanted of any queue, whether they are there or not.
    """

    log: Log
    vhost: str
    names: tuple[str, ...]
    pattern: str
    start: Places
    end: Places
    offsets_max: int
    min_partitions: int
    fail_on_data_loss: bool
    headers: bool
    body: bool
    reference: str
    min_offset: int
    max_offset: int

    def queue_names(self) -> list[str]:
        """The queues to be read now, in order."""
        if self.names:
            return list(self.names)
        return sorted(queue.name for queue in self.log.queues(self.vhost) if self.subscribes_to(queue.name))

    def subscribes_to(self, name: str) -> bool:
        """Whether it is one of the queues to read, if it is there."""
        if self.names:
            return name in self.names
        return not name.startswith(INTERNAL) and re.fullmatch(self.pattern, name) is not None


def parse_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """`streaming`: by default, a query starts at the end, a batch at the beginning."""
    options = canonical(given, NAMES, purpose="to read", error=BadOption)
    names, pattern = _subscription(options)
    reference = options.get("reference", "")
    if reference and "url" not in options:
        raise BadOption("the option reference needs url: it is the broker that remembers it")
    if streaming:
        _expect_absent(options, "endingOffsets", "endingTimestamp", "minOffset", "maxOffset")
    return ReadOptions(
        log=_log(options),
        vhost=options.get("vhost", "/"),
        names=names,
        pattern=pattern,
        start=_places(options, "starting", LATEST if streaming else EARLIEST),
        end=_ending(options),
        offsets_max=_number(options, "maxOffsetsPerTrigger"),
        min_partitions=_number(options, "minPartitions"),
        fail_on_data_loss=_flag(options, "failOnDataLoss"),
        headers=_flag(options, "includeHeaders"),
        body=_flag(options, "includeBody"),
        reference=reference,
        min_offset=_offset(options, "minOffset", 0),
        max_offset=_offset(options, "maxOffset", OFFSET_MAX),
    )


def _log(options: Mapping[str, str]) -> Log:
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
    offsets, time = f"{which}Offsets", f"{which}Timestamp"
    if time in options:
        _expect_absent(options, offsets, beside=time)
        return parse_time(time, options[time])
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


def _number(options: Mapping[str, str], name: str) -> int:
    """0 if it is not given."""
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


def _flag(options: Mapping[str, str], name: str) -> bool:
    flag = FLAGS.get(options.get(name, "true").strip().lower())
    if flag is None:
        raise BadOption(f"{name} must be true or false, not: {options[name]}")
    return flag
