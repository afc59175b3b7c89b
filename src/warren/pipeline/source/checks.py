"""What can be known to be wrong before anything is read or written, and how Spark is told.

Spark makes a `WarrenSource` at `load()`, `save()` and `start()`, with the options and not with what they are
for; that follows from their names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from warren.pipeline.errors import PipelineError
from warren.pipeline.option_names import canonical
from warren.pipeline.segments.errors import BadOption
from warren.pipeline.sink.options import NAMES as WRITING
from warren.pipeline.sink.options import SPARKS_NAMES, read_options
from warren.pipeline.source.options import NAMES as READING
from warren.pipeline.source.options import (
    OPTIONS_OF_TABLES,
    ReadOptions,
    consumes,
    parse_consume_options,
    parse_options,
)

HIDE_STACK = "SPARK_HIDE_TRACEBACK"
WORKERS_DAEMON = "pyspark.daemon"
OF_CREATE_TABLE = "option."  # before the name of each, beside the name alone; only when the table is made


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """What is raised for the user comes without the stack of Spark's worker. A worker ends with the error
    that it tells, so the setting hides no other.
    """
    try:
        yield
    except PipelineError as error:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if WORKERS_DAEMON in sys.modules or (spec is not None and spec.name.startswith("pyspark.")):
            os.environ[HIDE_STACK] = "1"
        raise error from None


def check_options(given: Mapping[str, str]) -> None:
    if any(name.startswith(OF_CREATE_TABLE) for name in given):
        raise BadOption(f"a table of WarrenMQ takes no options: {OPTIONS_OF_TABLES}")
    names = {name.lower() for name in given} - SPARKS_NAMES.keys()
    writing, reading = names & (WRITING.keys() - READING.keys()), names & (READING.keys() - WRITING.keys())
    if writing and not reading:
        read_options(given)
    elif reading and not writing and consumes(given):
        parse_consume_options(given)
    elif reading and not writing:
        _read_options(given)
    else:
        canonical(given, READING | WRITING | SPARKS_NAMES, purpose="to read or write", error=BadOption)


def check_source(given: Mapping[str, str]) -> None:
    """Whether what is to be read is there, and may be read. Queues that are to be consumed are looked for by
    the query, and a table that was made without options gets them with each query.
    """
    if not given or consumes(given):
        return
    options = _read_options(given)
    with closing(options.log) as log:
        if options.names and options.fail_on_data_loss:
            for name in options.names:
                log.contents(options.vhost, name)
        else:  # a query that minds no loss goes on when a queue is gone
            log.queues(options.vhost)


def _read_options(given: Mapping[str, str]) -> ReadOptions:
    """Right for a batch or for a stream: which it is, only the reader will know."""
    try:
        return parse_options(given, streaming=False)
    except BadOption as error:
        try:
            return parse_options(given, streaming=True)
        except BadOption:
            raise error from None
