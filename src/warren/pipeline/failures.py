"""Any failure of a job as one line for the person who started it.

What goes wrong in a worker comes back from Spark as text, with a stack of Python and one of Java around it.
The line that matters is the error that our own code raised, and otherwise the first one of Spark's own
message.
"""

from __future__ import annotations

import re

from warren.pipeline.errors import PipelineError

OURS = re.compile(r"^(?:\w+\.)*(?:PipelineError|UsageError|PublishError): (.+)$", re.MULTILINE)
RAISED = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
CAUSED = re.compile(r"^Caused by: (?:[\w$]+\.)*(\w+): (.+)$", re.MULTILINE)
CONDITION = re.compile(r"^\[[A-Z_.]+\] ")
STATE = re.compile(r" SQLSTATE: \w+")
LENGTH_MAX = 500


def in_one_line(error: BaseException) -> str:
    if isinstance(error, PipelineError):
        return str(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = f"{error}\n{getattr(error, 'java_exception', '')}"
    for pattern in (OURS, CAUSED, RAISED):
        found = pattern.findall(text)
        if found:
            return _short(found[-1] if isinstance(found[-1], str) else found[-1][1])
    return _short(next((line for line in text.splitlines() if line.strip()), type(error).__name__))


def _short(line: str) -> str:
    line = STATE.sub("", CONDITION.sub("", line.strip()))
    return line if len(line) <= LENGTH_MAX else f"{line[:LENGTH_MAX]}…"
