"""Seeing to it that a directory and all that is in it is for its owner alone."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def is_open(mode: int) -> bool:
    """Whether others than the owner have any right to it."""
    return bool(mode & OTHERS)


def make_private(paths: Iterable[str], warn: Callable[..., Any]) -> int:
    """Take from others what they may do to these; how many it was. Links are left alone, and so is what they
    lead to. What belongs to somebody else cannot be changed, which is told, as is a directory like `/tmp`.
    """
    changed = 0
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
            if not is_open(mode) or stat.S_ISLNK(mode):
                continue
            if mode & stat.S_ISVTX:
                raise PermissionError(errno.EPERM, "it is meant to be shared", path)
            os.chmod(path, stat.S_IMODE(mode) & ~OTHERS)  # noqa: PTH101 - paths are text here
            changed += 1
        except OSError as error:
            warn("cannot make private", file=path, error=str(error))
    return changed


def all_below(root: Path) -> Iterator[str]:
    """Everything in a directory, at any depth."""
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            yield f"{directory}/{name}"


def directly_below(root: Path) -> list[str]:
    with os.scandir(root) as entries:
        return [entry.path for entry in entries]
