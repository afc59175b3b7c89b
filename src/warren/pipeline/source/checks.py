"""Checks of options before anything is read or written, and how errors are reported to Spark.

Spark makes a `WarrenSource` at `load()`, `save()` and `start()`. It passes the options, but does not say
whether they are to read or to write: that follows from their names.
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
OF_CREATE_TABLE = "option."  # CREATE TABLE passes each option twice: by its name, and with this in front


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Have Spark show a PipelineError without the stack of its worker. The setting for that stays on, but
    hides no other stack: a worker ends with the error that it reports.
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
    """Raise if the queues do not exist, or may not be read.

    Not checked are queues to consume, which the query will look for, and a table without options, which gets
    its options with each query.
    """
    if not given or consumes(given):
        return
    options = _read_options(given)
    with closing(options.log) as log:
        if options.names and options.fail_on_data_loss:
            for name in options.names:
                log.contents(options.vhost, name)
        else:  # with failOnDataLoss set to false, a query goes on without a queue that is gone
            log.queues(options.vhost)


def _read_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse options that are right for a batch or for a stream: it is not known yet which of them it is."""
    try:
        return parse_options(given, streaming=False)
    except BadOption as error:
        try:
            return parse_options(given, streaming=True)
        except BadOption:
            raise error from None
