"""Reads a pipeline from a TOML file, and checks it key by key. Needs no Spark.

name = "paid orders"                    # optional
checkpoint = "checkpoints/paid"         # with a trigger

[source]                                # `format`, by default warren, and its options
url = "http://127.0.0.1:15672"
password = "${WARREN_PASSWORD}"         # from the environment
subscribe = "orders"

[transform]                             # optional: `sql` over the table `messages`,
sql = "select * from messages where routing_key like 'order.paid.%'"
# python = "paid.py:only_paid"          # or a function from DataFrame to DataFrame

[sink]                                  # `format`, `mode`, `partition_by`, and the format's options
format = "parquet"
path = "tables/paid"

[trigger]                               # with it messages are read as a stream: `once`, or `every`
every = "10 seconds"

[spark]                                 # optional: master, remote and conf, as --master, --remote and --conf
conf = { "spark.sql.shuffle.partitions" = 4 }
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from warren.pipeline.errors import PipelineError, UsageError
from warren.pipeline.jobs.numbers import span
from warren.pipeline.option_names import canonical, names_of
from warren.pipeline.sink.options import read_options
from warren.pipeline.source.options import parse_options

TABLES = ("source", "transform", "sink", "trigger", "spark")
FORMAT = "warren"
FUNCTION = re.compile(r"(?P<module>[^:]+):(?P<function>[A-Za-z_]\w*)")
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")

Toml: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """When a streaming query runs a batch."""

    once: bool  # read what is there now, and end
    every: str  # else: how long from batch to batch, such as `10 seconds`


@dataclass(frozen=True, kw_only=True)
class End:
    """A source or a sink of Spark."""

    format: str
    options: Mapping[str, str]
    mode: str = ""  # of a sink: append, overwrite and so on
    partition_by: tuple[str, ...] = ()  # of a sink: columns


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline as its file describes it. At most one of `sql` and `python` is given."""

    name: str
    source: End
    sql: str | None  # a query over the table `messages`
    python: tuple[str, str] | None  # a function from DataFrame to DataFrame: its file or module, and its name
    sink: End
    trigger: Trigger | None  # None: a batch
    checkpoint: str  # a directory; empty for a batch
    master: str | None  # as --master, --remote and --conf of the command, which go before these
    remote: str | None
    conf: Mapping[str, str]


def read_pipeline(path: Path, environment: Mapping[str, str]) -> Pipeline:
    """Read the file. An error names the file and the key."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return _pipeline(_expanded(content, environment), path.stem)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, PipelineError) as error:
        raise UsageError(f"{path}: {error}") from error


def _pipeline(content: Toml, name: str) -> Pipeline:
    _known("", content, "name", "checkpoint", *TABLES)
    for table in TABLES:
        if not isinstance(content.get(table, {}), dict):
            raise UsageError(f"{table} must be a table, [{table}]")
    for table in ("source", "sink"):
        if table not in content:
            raise UsageError(f"[{table}] is missing")
    trigger = _trigger(_table(content, "trigger")) if "trigger" in content else None
    transform, spark = _table(content, "transform"), _table(content, "spark")
    _known("transform", transform, "sql", "python")
    _known("spark", spark, "master", "remote", "conf")
    if len(transform) > 1:
        raise UsageError("transform has sql and python: give one of them")
    return Pipeline(
        name=_text("name", content, name) or name,
        source=_source(_table(content, "source"), streaming=trigger is not None),
        sql=_text("transform.sql", transform),
        python=_function(_text("transform.python", transform)),
        sink=_sink(_table(content, "sink"), streaming=trigger is not None),
        trigger=trigger,
        checkpoint=_checkpoint(_text("checkpoint", content), trigger),
        master=_text("spark.master", spark),
        remote=_text("spark.remote", spark),
        conf=_options("spark.conf", _table(spark, "conf")),
    )


def _source(table: Toml, *, streaming: bool) -> End:
    chosen = _text("source.format", table, FORMAT) or FORMAT
    options = _options("source", table, without=("format",))
    if chosen == FORMAT:
        _checked("source", lambda: parse_options(options, streaming=streaming))
    return End(format=chosen, options=options)


def _sink(table: Toml, *, streaming: bool) -> End:
    chosen = _text("sink.format", table)
    if chosen is None:
        raise UsageError("sink.format is missing: parquet, console, warren, or whatever Spark knows")
    options = _options("sink", table, without=("format", "mode", "partition_by"))
    if chosen == FORMAT:
        _checked("sink", lambda: read_options(options))
    partition_by = table.get("partition_by", [])
    if not isinstance(partition_by, list) or not all(isinstance(each, str) for each in partition_by):
        raise UsageError("sink.partition_by must be a list of columns")
    mode = _text("sink.mode", table, "append") or "append"
    allowed = ("append", "complete", "update") if streaming else ("append", "overwrite", "ignore", "error")
    if mode not in allowed:
        raise UsageError(f"sink.mode is {mode!r}: one of {', '.join(allowed)}")
    return End(format=chosen, options=options, mode=mode, partition_by=tuple(partition_by))


def _trigger(table: Toml) -> Trigger:
    _known("trigger", table, "once", "every")
    if len(table) != 1:
        raise UsageError("trigger has one key: once = true, or every = '10 seconds'")
    if "once" in table:
        if table["once"] is not True:
            raise UsageError("trigger.once can only be true: leave out [trigger] for a batch")
        return Trigger(once=True, every="")
    text = _text("trigger.every", table) or ""
    try:
        return Trigger(once=False, every=span(text))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"trigger.every: {error}") from error


def _checkpoint(text: str | None, trigger: Trigger | None) -> str:
    if trigger is not None and not text:
        raise UsageError("checkpoint is missing: with a trigger it says where to keep the query's progress")
    if trigger is None and text:
        raise UsageError("checkpoint needs a [trigger]: a batch keeps nothing")
    return text or ""


def _function(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    found = FUNCTION.fullmatch(text)
    if found is None:
        raise UsageError(f"transform.python is {text!r}, which is not like 'file.py:function'")
    return found["module"], found["function"]


# --- keys and values ---


def _known(table: str, content: Toml, *names: str) -> None:
    where = f"in [{table}]" if table else "at the top"
    canonical(dict.fromkeys(content, ""), names_of(*names), purpose=where, error=UsageError, what="key")


def _checked(table: str, parse: Callable[[], object]) -> None:
    try:
        parse()
    except PipelineError as error:
        raise UsageError(f"[{table}]: {error}") from error


def _table(content: Toml, name: str) -> Toml:
    found = content.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{name} must be a table")
    return found


def _text(key: str, table: Toml, default: str | None = None) -> str | None:
    value = table.get(key.rpartition(".")[2], default)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{key} must be a text, not {value!r}")
    return value


def _options(key: str, table: Toml, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Values as texts, as Spark takes options; a table, such as offsets by queue, becomes JSON."""
    return {name: _option(f"{key}.{name}", value) for name, value in table.items() if name not in without}


def _option(key: str, value: object) -> str:
    if isinstance(value, bool | dict):
        return json.dumps(value)
    if isinstance(value, str | int | float):
        return str(value)
    raise UsageError(f"{key} must be a text, a number, true, false or a table, not {value!r}")


def _expanded(content: Toml, environment: Mapping[str, str], key: str = "") -> dict[str, object]:
    """The content with each `${NAME}` replaced by the environment variable of that name."""
    found: dict[str, object] = {}
    for name, value in content.items():
        place = f"{key}.{name}".lstrip(".")
        if isinstance(value, dict):
            found[name] = _expanded(value, environment, place)
        elif isinstance(value, str):
            found[name] = _substituted(value, environment, place)
        else:
            found[name] = value
    return found


def _substituted(text: str, environment: Mapping[str, str], key: str) -> str:
    for name in VARIABLE.findall(text):
        if name not in environment:
            raise UsageError(f"{key} names ${{{name}}}, which the environment does not have")
    return VARIABLE.sub(lambda match: environment[match[1]], text)
