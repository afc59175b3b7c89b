"""Rows that no queue took: the end of the write, or a table of their own.

The table is Parquet, one file for each task that had any, named after what was written, so that a task that
runs again overwrites what it left.
"""

from __future__ import annotations

import re
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from warren.pipeline.errors import PipelineError
from warren.pipeline.publisher import Unpublished

SCHEMA = pa.schema(
    [
        ("vhost", pa.string()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("message_id", pa.string()),
        ("reason", pa.string()),
        ("body", pa.binary()),
    ]
)
ROWS_MAX = 10_000
"""So many are gathered before they are written."""


class Failures(Protocol):
    """Takes what failed; `count` says how much that is."""

    count: int

    def take(self, failure: Unpublished) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None:
        """The write failed, and none of this counts."""


class FirstIsFatal:
    """No row may fail."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, failure: Unpublished) -> None:
        message = failure.message
        raise PipelineError(
            f"message '{message.message_id}' to exchange '{message.exchange}' with routing key "
            f"'{message.routing_key}': {failure.reason}. Option errors can name a directory for such rows"
        )

    def close(self) -> None:
        """Nothing was kept."""

    def discard(self) -> None:
        """Nothing was kept."""


class SideTable:
    """Keeps them in a file under `path`, which may be any that Arrow knows: a directory, s3://, hdfs://…"""

    def __init__(self, path: str, *, vhost: str, name: str) -> None:
        self.count = 0
        self._vhost = vhost
        self._rows: list[tuple[str, str, str, str, str, bytes]] = []
        self._writer: pq.ParquetWriter | None = None
        self._files, directory = _open(path)
        file_name = re.sub(r"[^\w.-]", "-", name) + ".parquet"
        self._final = f"{directory}/part-{file_name}"
        self._unfinished = f"{directory}/_{file_name}"  # Spark does not see what begins so
        self._files.create_dir(directory, recursive=True)

    def take(self, failure: Unpublished) -> None:
        message = failure.message
        self._rows.append(
            (
                self._vhost,
                message.exchange,
                message.routing_key,
                message.message_id,
                failure.reason,
                message.body,
            )
        )
        self.count += 1
        if len(self._rows) >= ROWS_MAX:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._unfinished, SCHEMA, filesystem=self._files)
        columns = zip(zip(*self._rows, strict=True), SCHEMA.types, strict=True)
        arrays = [pa.array(column, kind) for column, kind in columns]
        self._writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
        self._rows.clear()

    def close(self) -> None:
        if self._rows:
            self._write()
        if self._writer is not None:
            self._writer.close()
            self._files.move(self._unfinished, self._final)
        elif self._files.get_file_info(self._final).type != fs.FileType.NotFound:
            self._files.delete_file(self._final)  # of an earlier run, of which nothing is left over now

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._files.delete_file(self._unfinished)


def _open(path: str) -> tuple[fs.FileSystem, str]:
    try:
        files, directory = fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)
    except (pa.ArrowInvalid, OSError) as error:
        raise PipelineError(f"option errors: cannot write to {path}: {error}") from error
    return files, directory.rstrip("/")
