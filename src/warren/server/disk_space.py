"""How much disk space is free, and whether that is below the limit."""

from __future__ import annotations

import shutil
from pathlib import Path

LOOK_AGAIN_BYTES_MIN = 1024 * 1024
LOOK_AGAIN_SHARE = 8  # look again once this part of the spare bytes (1/8) has been written


class DiskSpace:
    """Asks the system for the free space: once a second, and more often while much is written and the limit
    is near.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self.look_again_at = 0  # a total of written bytes

    def set_limit(self, limit_bytes: int) -> None:
        """Look again soon, however far the limit was when the last look was taken."""
        self.limit_bytes = limit_bytes
        self.look_again_at = 0

    def is_low(self) -> bool:
        return self._spare_bytes() < 0

    def is_found_low(self, written_bytes: int) -> bool:
        """The same, but asks the system only if enough has been written since to have changed the answer.
        `written_bytes` is the total since the broker started.
        """
        if written_bytes < self.look_again_at:
            return False
        spare = self._spare_bytes()
        self.look_again_at = written_bytes + max(spare // LOOK_AGAIN_SHARE, LOOK_AGAIN_BYTES_MIN)
        return spare < 0

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free

    def _spare_bytes(self) -> int:
        return self.free_bytes() - self.limit_bytes
