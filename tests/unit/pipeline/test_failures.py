"""An error that comes back from Spark with pages of stacks becomes one line, in the words of the command."""

from __future__ import annotations

import pytest

from warren.pipeline.errors import PipelineError
from warren.pipeline.failures import for_the_command, in_one_line

WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/options.py", line 77, in _log
    raise BadOption("…")
warren.pipeline.segments.errors.UnknownQueue: no queue 'x' in vhost '/': change the option subscribe, or vhost

\tat org.apache.spark.sql.Something(Something.scala:12)
Caused by: org.apache.spark.SparkException: Job aborted
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PipelineError("as it is"), "as it is"),
        (RuntimeError(WORKER), "no queue 'x' in vhost '/': change the option subscribe, or vhost"),
        (
            RuntimeError("[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03\nmore"),
            "Path does not exist: /x.",
        ),
        (
            RuntimeError("a\nCaused by: java.io.IOException: No space left on device\n\tat x"),
            "No space left on device",
        ),
        (
            FileNotFoundError(2, "No such file or directory", "plan.json"),
            "plan.json: No such file or directory",
        ),
        (KeyError(), "KeyError"),
        (RuntimeError("x" * 900), "x" * 500 + "…"),
    ],
)
def test_failure_is_one_line(error: BaseException, line: str) -> None:
    assert in_one_line(error) == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError(WORKER), "no queue 'x' in vhost '/': change the option --queue, or --vhost"),
        (
            RuntimeError(
                "warren.pipeline.segments.errors.DataLoss: lost; set failOnDataLoss to false to go on"
            ),
            "lost; give --allow-data-loss to go on",
        ),
        (PipelineError("the option path"), "the option path"),
    ],
)
def test_command_has_its_own_names_for_options(error: BaseException, line: str) -> None:
    assert for_the_command(error) == line
