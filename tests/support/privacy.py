"""Whether other users than the owner can access the files that a broker has written."""

from __future__ import annotations

import os
from pathlib import Path

OTHERS = 0o077


def open_to_others(directory: Path) -> set[str]:
    """All files and directories, this one included, to which other users have any right. Skips links."""
    if not directory.exists():
        return set()
    found = {str(directory)} if directory.stat().st_mode & OTHERS else set()
    for folder, names, files in os.walk(directory):
        for name in (*names, *files):
            path = Path(folder, name)
            if not path.is_symlink() and path.lstat().st_mode & OTHERS:
                found.add(str(path))
    return found
