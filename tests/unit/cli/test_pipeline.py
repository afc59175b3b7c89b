"""`warren pipeline` before Spark starts: help, usage errors, and a line where Spark is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from warren.cli import pipeline
from warren.cli.main import main

WITHOUT_SPARK = """
import sys
sys.modules |= dict.fromkeys(["pyspark", "pyarrow", "pandas"])  # as if they were not installed
from warren.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run(
    *words: str, code: str = "from warren.cli.main import main; import sys; sys.exit(main())"
) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_other_commands_load_nothing_of_spark() -> None:
    code = """
import sys
from warren.cli.main import main
try:
    main(["serve", "--help"])
except SystemExit:
    pass
print(sorted(name for name in sys.modules if name.startswith(("pyspark", "pyarrow", "pandas", "numpy"))))
"""
    assert run(code=code)[1].splitlines()[-1] == "[]"


def test_without_spark_one_line_says_how_to_get_it() -> None:
    words = ("pipeline", "flow", "--path", "d", "--queue", "q")
    wanted = "warren pipeline: the data pipeline needs Spark: pip install 'warrenmq[spark]'\n"
    assert run(*words, code=WITHOUT_SPARK) == (1, wanted)


def test_without_spark_the_jobs_are_listed() -> None:
    code, text = run("pipeline", "--help", code=WITHOUT_SPARK)
    assert code == 0
    for job in pipeline.JOBS:
        assert job in text


@pytest.mark.parametrize("job", ["archive", "compact", "dead-letters", "flow", "what-if", "audit"])
def test_each_job_tells_its_options(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", job, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    for option in ("--queue", "--master", "--remote", "--conf", "--html", "--quiet"):
        assert option in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "the following arguments are required: JOB"),
        (["dance"], "invalid choice: 'dance'"),
        (["flow", "--path", "d"], "which queues?"),
        (["flow", "--path", "d", "--queue", "q", "--follow"], "need --to"),
        (["flow", "--path", "d", "--queue", "q", "--window", "long"], "not a time such as"),
        (["archive", "--path", "d", "--queue", "q", "--to", "a", "--reference", "r"], "needs --url"),
        (["compact", "--archive", "a", "--to", "a/"], "--to must be another directory"),
        (["compact", "--archive", "a", "--to", "b", "--latest-per", "luck"], "header:NAME"),
        (["compact", "--archive", "a", "--to", "b", "--from-offset", "5"], "whole days"),
        (["compact", "--archive", "a", "--to", "b", "--since", "2026-03-01T12:00:00"], "whole days"),
        (["compact", "--archive", "a", "--to", "b", "--until", "2026-03-01T12:00:00"], "whole days"),
        (["compact", "--archive", "a", "--to", "b", "--latest-per", "type", "--since", "5"], "whole queues"),
        (["what-if", "--path", "d", "--queue", "q", "--topology", "/nowhere.json"], "cannot read --topology"),
        (["audit", "--path", "d", "--queue", "q", "--conf", "x"], "not KEY=VALUE"),
        (["audit", "--path", "d", "--queue", "q", "--html", "/nowhere/x.html"], "there is no directory"),
    ],
)
def test_usage_errors_exit_with_2_before_spark_starts(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *words])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_topology_is_checked_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"exchanges": [{"name": "x", "type": "odd"}]}')
    code = main(["pipeline", "what-if", "--path", "d", "--queue", "q", "--topology", str(plan)])
    assert code == 1
    assert "unknown exchange type 'odd'" in capsys.readouterr().err
