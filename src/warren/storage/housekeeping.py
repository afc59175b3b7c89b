"""What is done in the background, in order, and that nobody waits for: indexes, ack files anew, deletions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from warren.storage.recovery import remove_files, remove_tree
from warren.storage.segment import Segment


class Housekeeping:
    def __init__(self, warn: Callable[..., Any]) -> None:
        self.warn = warn
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="warren-housekeeping")

    def close(self, segment: Segment) -> None:
        """Write the index beside a segment that gets no more records."""
        self._do(
            "cannot write index", segment.path, lambda: None if segment.dropped else segment.write_index()
        )

    def remove(self, segment: Segment) -> None:
        """Delete its files, but not what could not all be read."""
        path = segment.path
        if not segment.damaged:
            self._do("cannot delete segment", path, lambda: remove_files(path))

    def remove_now(self, segment: Segment) -> None:
        """The same, but not in the background."""
        if not segment.damaged:
            self._try("cannot delete segment", segment.path, lambda: remove_files(segment.path))

    def remove_directory(self, path: str) -> None:
        self._do("cannot delete directory", path, lambda: remove_tree(path))

    def rewrite(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """Write an ack file anew."""
        self._do("cannot write ack file anew", path, work, failed)

    def let_go(self, path: str, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """Be done with an ack file, the old one or one that was written in vain."""
        self._do("cannot let go of ack file", path, work, failed)

    def _do(
        self, trouble: str, path: str, work: Callable[[], None], failed: Callable[[], None] | None = None
    ) -> None:
        self.thread.submit(self._try, trouble, path, work, failed)

    def _try(
        self, trouble: str, path: str, work: Callable[[], None], failed: Callable[[], None] | None = None
    ) -> None:
        try:
            work()
        except OSError as error:
            self.warn(trouble, file=path, error=str(error))
            if failed is not None:
                failed()

    def stop(self) -> None:
        """When all is done."""
        self.thread.shutdown(wait=True)
