"""Several `warren pipeline` commands in one process, and on a master in one application: a new one would
start Java again on each worker.

Its argument is a list of lists of words, as JSON; the output is the exit status of each and what it wrote.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from unittest.mock import patch

from pyspark.sql import SparkSession

from warren.cli.pipeline import main


def run(words: list[str]) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as output, patch.object(SparkSession, "stop"):
        status = main(words)
    return status, output.getvalue()


if __name__ == "__main__":
    sys.stdout.write(json.dumps([run(words) for words in json.loads(sys.argv[1])]))
