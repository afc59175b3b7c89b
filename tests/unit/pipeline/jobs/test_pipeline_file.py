"""What a pipeline's file says, and how it is told what is wrong with one."""

from __future__ import annotations

import argparse
import runpy
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from warren.cli.pipeline import load
from warren.pipeline.errors import UsageError
from warren.pipeline.jobs.pipeline_file import Pipeline, Trigger, read_pipeline

EXAMPLES = Path(__file__).parents[4] / "examples"
SOURCE = '[source]\npath = "/data"\nsubscribe = "s"\n'
SINK = '[sink]\nformat = "parquet"\npath = "/to"\n'
GOOD = SOURCE + SINK


def read(tmp_path: Path, text: str) -> Pipeline:
    (tmp_path / "p.toml").write_text(text)
    return read_pipeline(tmp_path / "p.toml", {})


def test_example_is_read_whole() -> None:
    pipeline = read_pipeline(EXAMPLES / "paid_orders.toml", {"WARREN_PASSWORD": "from outside"})
    assert (pipeline.name, pipeline.checkpoint) == ("paid orders", "checkpoints/paid-orders")
    assert (pipeline.source.format, pipeline.source.options["password"]) == ("warren", "from outside")
    assert pipeline.sql is not None
    assert pipeline.sink.options == {"path": "tables/paid-orders"}
    assert (pipeline.sink.mode, pipeline.sink.partition_by) == ("append", ("day",))
    assert pipeline.trigger == Trigger(once=True, every="")
    assert pipeline.conf == {"spark.sql.shuffle.partitions": "4"}


def test_options_may_be_numbers_flags_and_tables(tmp_path: Path) -> None:
    extra = "minPartitions = 3\nincludeBody = false\nstartingOffsets = { s = 4 }\n"
    pipeline = read(tmp_path, SOURCE + extra + SINK)
    assert dict(list(pipeline.source.options.items())[2:]) == {
        "minPartitions": "3",
        "includeBody": "false",
        "startingOffsets": '{"s": 4}',
    }
    assert (pipeline.name, pipeline.trigger, pipeline.sql, pipeline.python) == ("p", None, None, None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "Expected '=' after a key"),
        (SINK, "[source] is missing"),
        (SOURCE, "[sink] is missing"),
        ("[sources]\n" + GOOD, "unknown key 'sources' at the top: did you mean source?"),
        ("source = 3\n" + SINK, "source must be a table, [source]"),
        (GOOD + "[transform]\nsqls = 'x'", "unknown key 'sqls' in [transform]: did you mean sql?"),
        (GOOD + "[transform]\nsql = 3", "transform.sql must be a text, not 3"),
        (GOOD + "[transform]\nsql = 'x'\npython = 'a:b'", "transform has sql and python: give one of them"),
        (GOOD + "[transform]\npython = 'a'", "transform.python is 'a', which is not like 'file.py:function'"),
        (
            "[source]\npath = '/d'\nsubscribed = 's'\n" + SINK,
            "[source]: unknown option 'subscribed' to read: did you",
        ),
        (
            SOURCE + "minPartitions = []\n" + SINK,
            "source.minPartitions must be a text, a number, true, false or",
        ),
        (SOURCE + "[sink]\npath = 'x'", "sink.format is missing: parquet, console, warren, or"),
        (
            SOURCE + "[sink]\nformat = 'warren'\nrouting_key = 'x'",
            "[sink]: unknown option 'routing_key' to write: did",
        ),
        (
            SOURCE + SINK + "mode = 'complete'",
            "sink.mode is 'complete': one of append, overwrite, ignore, error",
        ),
        (SOURCE + SINK + "partition_by = 'day'", "sink.partition_by must be a list of columns"),
        (GOOD + "[trigger]\nonce = true", "checkpoint is missing: with a trigger it says where"),
        ("checkpoint = 'c'\n" + GOOD, "checkpoint needs a [trigger]: a batch keeps nothing"),
        ("checkpoint = 'c'\n" + GOOD + "[trigger]", "trigger has one key: once = true, or every = "),
        ("checkpoint = 'c'\n" + GOOD + "[trigger]\nonce = false", "trigger.once can only be true"),
        ("checkpoint = 'c'\n" + GOOD + "[trigger]\nevery = 'soon'", "trigger.every: not a time such as"),
        (
            SOURCE + "password = '${ABSENT}'\n" + SINK,
            "source.password names ${ABSENT}, which the environment does",
        ),
        (GOOD + "[spark]\nmasters = 'x'", "unknown key 'masters' in [spark]: did you mean master?"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'p.toml'}: {told}")


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*absent\.toml: No such file"):
        read_pipeline(tmp_path / "absent.toml", {})


def test_airflow_example_runs_commands_with_options_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow is no dependency of the tests, so a stub stands in for it."""
    operators: list[dict[str, str]] = []

    class Operator:
        def __init__(self, **given: str) -> None:
            operators.append(given)

        def __rshift__(self, _other: object) -> None:
            pass

    for module, names in (
        ("airflow.sdk", {"DAG": lambda *_, **__: nullcontext()}),
        ("airflow.providers.standard.operators.bash", {"BashOperator": Operator}),
    ):
        monkeypatch.setitem(sys.modules, module, cast("ModuleType", SimpleNamespace(**names)))
    runpy.run_path(str(EXAMPLES / "airflow_dag.py"))

    assert [operator["task_id"] for operator in operators] == ["archive", "paid_orders", "audit"]
    for operator in operators:
        _warren, pipeline, job, *words = shlex.split(operator["bash_command"])
        parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
        load(job).add_arguments(parser)
        parser.parse_args(words)
        assert pipeline == "pipeline"
        assert "WARREN_PASSWORD" in operator["env"]
        assert ("cwd" in operator) is (job == "run"), "its file has relative paths"
