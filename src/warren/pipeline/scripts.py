"""Small programs that stand in front of others, kept in the user's cache:

    <the user's cache>/warren/<kind>/<digest of its text>/<name>

Several processes may make the same one at once: each finds it whole. A service whose user has no home, or one
that it may not write to, has its cache where temporary files are, in a directory that only this user can
write to: Spark runs what is in it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from warren.pipeline.errors import PipelineError


def script(kind: str, name: str, text: str, environment: Mapping[str, str]) -> Path:
    """The program with this text, made if it is not there."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    place = Path(kind, digest, name)
    given = environment.get("XDG_CACHE_HOME", "")
    try:
        if given.startswith("/"):
            return _made(Path(given) / "warren" / place, text)
        try:
            return _made(_home(environment) / ".cache" / "warren" / place, text)
        except OSError:
            return _made(_temporary_cache() / place, text)
    except OSError as error:
        raise PipelineError(
            f"cannot write {error.filename}: {error.strerror}; XDG_CACHE_HOME can name another directory"
        ) from error


def _home(environment: Mapping[str, str]) -> Path:
    given = environment.get("HOME", "")
    try:
        return Path(given) if given.startswith("/") else Path.home()
    except RuntimeError as error:  # a user of whom the system knows nothing but the number
        raise FileNotFoundError(errno.ENOENT, "this user has no home", "~") from error


def _temporary_cache() -> Path:
    """The name of this directory can be guessed, so another user may have made it first."""
    path = Path(tempfile.gettempdir(), f"warren-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others can write to it", str(path))
    return path


def _made(target: Path, text: str) -> Path:
    if not (os.access(target, os.X_OK) and target.read_text() == text):
        _put(target, text)
    return target


def _put(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(handle, 0o755)
    Path(name).replace(target)
