"""How much of the disk is free, and how much must be."""

from __future__ import annotations

import shutil
from pathlib import Path

LOOK_AGAIN_BYTES_MIN = 1024 * 1024
LOOK_AGAIN_SHARE = 8


class DiskSpace:
    """Looks once a second, and oftener while much is written and the limit is near."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self.look_again_at = 0

    def is_low(self) -> bool:
        return self._spare_bytes() < 0

    def is_found_low(self, written_bytes: int) -> bool:
        """The same, but looks only if so much has been written that it may have changed."""
        if written_bytes < self.look_again_at:
            return False
        spare = self._spare_bytes()
        self.look_again_at = written_bytes + max(spare // LOOK_AGAIN_SHARE, LOOK_AGAIN_BYTES_MIN)
        return spare < 0

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free

    def _spare_bytes(self) -> int:
        return self.free_bytes() - self.limit_bytes
