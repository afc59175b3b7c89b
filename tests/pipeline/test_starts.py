"""Starting Spark where nothing was prepared for it: a virtual environment that is not activated, another
Python and no suitable Java on the PATH, as under cron, in Airflow, or in a notebook's kernel.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.pipeline.conftest import CONF
from tests.support.segments import DataDirectory

COUNTS = """
import sys
frame = spark.read.format("warren").option("path", sys.argv[1]).option("subscribe", "s").load()
tripled = frame.mapInArrow(lambda batches: (b for batch in batches for b in [batch] * 3), frame.schema)
print("counted", frame.count(), tripled.count(), spark.conf.get("spark.sql.session.timeZone"))
"""
OPENS = f"import warren; spark = warren.spark_session(master='local[1]', conf={CONF!r})"
SOCKETS = """
from pathlib import Path
sockets = Path(spark.conf.get("spark.python.unix.domain.socket.dir"))
print("sockets", any(each.is_socket() for each in sockets.iterdir()))
"""
STOPS = "spark.stop()"
OWN = f"""
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.session.timeZone", "UTC").config(map={CONF!r}).getOrCreate()
"""
IN_A_LOOP = """
import asyncio
async def cell(text):
    exec(compile(text, "<cell>", "exec"), globals())
asyncio.run(cell({text!r}))
"""
DECOY = "#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\nexit 1\n"


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment as cron gives it, in which `java` and `python3` do not work."""
    for name in ("java", "python3", "python"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(DECOY)
        program.chmod(0o755)
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "SHELL": "/bin/sh"}


@pytest.fixture
def data(tmp_path: Path) -> str:
    stream = DataDirectory(tmp_path / "data").queue("s")
    stream.append(5)
    return str(tmp_path / "data")


def run(command: list[str], environment: dict[str, str], stdin: str = "") -> str:
    """The output of a command that runs in the home directory with this environment."""
    done = subprocess.run(
        command,
        env=environment,
        cwd=environment["HOME"],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_session_works_under_cron(bare: dict[str, str], data: str) -> None:
    assert run([sys.executable, "-c", OPENS + COUNTS, data], bare) == "counted 5 15 UTC\n"


def test_session_works_in_a_notebook_also_after_one_that_was_started_badly(
    bare: dict[str, str], data: str
) -> None:
    """As in a notebook's kernel, the code is in no file, runs within an event loop, and has started a Spark
    of its own before.
    """
    home = run([sys.executable, "-m", "warren", "pipeline", "java-home"], bare).strip()
    cells = f"{OWN}\n{STOPS}\n{OPENS}\n{COUNTS}"
    environment = bare | {"JAVA_HOME": home}
    assert run([sys.executable, "-", data], environment, IN_A_LOOP.format(text=cells)) == "counted 5 15 UTC\n"


def test_workers_talk_over_unix_sockets_whose_directory_goes_with_the_process(
    bare: dict[str, str], data: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        told = run([sys.executable, "-c", OPENS + COUNTS + SOCKETS, data], bare | {"TMPDIR": directory})
        assert told == "counted 5 15 UTC\nsockets True\n"
        assert list(Path(directory).glob("warren-spark-*")) == []


def test_session_of_ones_own_works_with_what_readme_says_to_set(bare: dict[str, str], data: str) -> None:
    home = run([sys.executable, "-m", "warren", "pipeline", "java-home"], bare).strip()
    environment = bare | {"JAVA_HOME": home, "PYSPARK_PYTHON": sys.executable}
    assert run([sys.executable, "-c", OWN + COUNTS, data], environment) == "counted 5 15 UTC\n"


def test_session_that_runs_already_with_another_python_is_told(bare: dict[str, str]) -> None:
    home = run([sys.executable, "-m", "warren", "pipeline", "java-home"], bare).strip()
    code = f"{OWN}\nimport warren\ntry:\n    {OPENS}\nexcept Exception as error:\n    print(error)"
    told = run([sys.executable, "-c", code], bare | {"JAVA_HOME": home})
    assert told.startswith(
        "a Spark session runs here already, whose workers have another Python, python3: stop()"
    )


BUSY = """
import sys, time
if any("python_streaming_source_runner" in word or "worker_front" in word for word in sys.orig_argv):
    time.sleep(12)  # Spark waits for 10
"""
STREAMS = """
import sys
frame = spark.readStream.format("warren").option("path", sys.argv[1]).option("subscribe", "s")
frame = frame.option("startingOffsets", "earliest").load()
query = frame.writeStream.format("memory").queryName("t").trigger(availableNow=True).start()
query.awaitTermination()
print("counted", spark.table("t").count())
"""


def test_stream_starts_on_a_machine_that_takes_longer_than_spark_waits(
    bare: dict[str, str], data: str, tmp_path: Path
) -> None:
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "sitecustomize.py").write_text(BUSY)
    environment = bare | {"PYTHONPATH": str(tmp_path / "busy")}
    assert run([sys.executable, "-c", OPENS + STREAMS, data], environment) == "counted 5\n"
