"""Small programs that stand in front of others, kept in the user's cache:

    <the user's cache>/warren/<kind>/<digest of its text>/<name>

Several processes may make the same one at once: each finds it whole.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from warren.pipeline.errors import PipelineError


def script(kind: str, name: str, text: str, environment: Mapping[str, str]) -> Path:
    """The program with this text, made if it is not there."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    target = _cache_directory(environment) / kind / digest / name
    try:
        if not (os.access(target, os.X_OK) and target.read_text() == text):
            _put(target, text)
    except OSError as error:
        raise PipelineError(
            f"cannot write {target}: {error.strerror}; XDG_CACHE_HOME can name another directory"
        ) from error
    return target


def _cache_directory(environment: Mapping[str, str]) -> Path:
    given = environment.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "warren"


def _put(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(handle, 0o755)
    Path(name).replace(target)
