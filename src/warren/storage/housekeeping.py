"""What is done in the background, in order, and that nobody waits for: indexes and deletions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from warren.storage.recovery import remove_files, remove_tree
from warren.storage.segment import Segment

Job: TypeAlias = tuple[str, str, Callable[[], None]]
"""What to say if it fails, of which file, and what to do."""


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

    def remove_directories(self, paths: Sequence[str]) -> None:
        """Handed over together: one by one, very many would cost the event loop more than the thread."""
        self._do_all([("cannot delete directory", path, partial(remove_tree, path)) for path in paths])

    def _do(self, trouble: str, path: str, work: Callable[[], None]) -> None:
        self._do_all([(trouble, path, work)])

    def _do_all(self, jobs: Sequence[Job]) -> None:
        self.thread.submit(self._try_all, jobs)

    def _try_all(self, jobs: Sequence[Job]) -> None:
        for trouble, path, work in jobs:
            self._try(trouble, path, work)

    def _try(self, trouble: str, path: str, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self.warn(trouble, file=path, error=str(error))

    def stop(self) -> None:
        """When all is done."""
        self.thread.shutdown(wait=True)
