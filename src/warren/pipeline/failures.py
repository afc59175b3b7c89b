"""Turns any failure of a job into one line for the person who started it.

An error in a worker comes back from Spark as text, with a stack of Python and one of Java around it. The line
that matters is the error that our own code raised; if there is none, the first line of Spark's own message.
"""

from __future__ import annotations

import re

from warren.pipeline.errors import PipelineError
from warren.pipeline.segments.errors import ReadError

OURS = re.compile(r"(?:^|: )warren\.pipeline\.(?:\w+\.)*\w+: (.+)$", re.MULTILINE)
CAUSED = re.compile(r"^Caused by: (?:[\w$]+\.)*\w+: (.+)$", re.MULTILINE)
RAISED = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): (.+)$", re.MULTILINE)
CONDITION = re.compile(r"^\[[A-Z_.]+\] ")
STATE = re.compile(r" SQLSTATE: \w+")
LENGTH_MAX = 500
OPTIONS = {
    "set failOnDataLoss to false": "give --allow-data-loss",
    "subscribePattern": "--pattern",
    "subscribe": "--queue",
    "startingOffsets": "--from-offset",
    "endingOffsets": "--to-offset",
    "startingTimestamp": "--since",
    "endingTimestamp": "--until",
    "maxOffsetsPerTrigger": "--batch",
    "options user and password": "options --user and --password",
    "read it in batch": "read it in batch (archive --snapshot, flow without --follow and --once)",
    "stream; to consume it, set consume to true": "stream",
    "option path": "option --path",
    "option url": "option --url",
    "option amqp": "option --amqp",
    "option user": "option --user",
    "option password": "option --password",
    "option vhost": "option --vhost",
    "or vhost": "or --vhost",
    "option reference": "option --reference",
}
"""The data source's words for its options, and the commands' words for the same."""


def in_one_line(error: BaseException) -> str:
    if isinstance(error, PipelineError):
        return str(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = f"{error}\n{getattr(error, 'java_exception', '')}"
    for pattern in (OURS, CAUSED, RAISED):
        found = pattern.findall(text)
        if found:
            return _short(found[-1])
    return _short(next((line for line in text.splitlines() if line.strip()), type(error).__name__))


def for_the_command(error: BaseException) -> str:
    """As `in_one_line`, but with the commands' names for options instead of the data source's."""
    line = in_one_line(error)
    if isinstance(error, PipelineError) and not isinstance(error, ReadError):
        return line
    for theirs, ours in OPTIONS.items():
        line = re.sub(rf"(?<![\w-]){theirs}\b", ours, line)
    return line


def _short(line: str) -> str:
    line = STATE.sub("", CONDITION.sub("", line.strip()))
    return line if len(line) <= LENGTH_MAX else f"{line[:LENGTH_MAX]}…"
