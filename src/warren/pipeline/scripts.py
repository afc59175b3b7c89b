"""Small wrapper scripts that Spark runs instead of Java or Python, kept in the user's cache:

    <the user's cache>/warren/<kind>/<digest of its text>/<name>

Several processes may make the same script at once: each is put there whole, by a rename. For a user without a
home that can be written to, as services often have, the cache is in the directory of temporary files, in a
directory that only this user can write to, since Spark runs the scripts in it.
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
    """The path of the script with this text, which is made if it is not there."""
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
    except RuntimeError as error:  # the user id is in no user database
        raise FileNotFoundError(errno.ENOENT, "this user has no home", "~") from error


def _temporary_cache() -> Path:
    """This directory's name can be guessed, so check that another user has not made it first."""
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
