"""What to do with rows that no queue took: fail the write, or keep them in a side table.

The table is Parquet, with one file for each task that had such rows. The file is named after the task's part
of the write, so that a task which runs again overwrites its earlier file.
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
"""Rows are gathered up to this number before they are written."""


class Failures(Protocol):
    """Takes the failed rows of one task."""

    count: int  # of rows taken so far

    def take(self, failure: Unpublished) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None:
        """The task failed: drop the rows taken so far."""


class FirstIsFatal:
    """The first failed row ends the write."""

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
    """Keeps failed rows in a file under `path`, on any file system Arrow knows: a directory, s3://, hdfs://…"""

    def __init__(self, path: str, *, vhost: str, name: str) -> None:
        self.count = 0
        self._vhost = vhost  # the column of that name
        self._rows: list[tuple[str, str, str, str, str, bytes]] = []  # as in SCHEMA, not written yet
        self._writer: pq.ParquetWriter | None = None  # None before the first rows are written
        self._files, directory = _open(path)
        file_name = re.sub(r"[^\w.-]", "-", name) + ".parquet"
        self._final = f"{directory}/part-{file_name}"  # where the file is once the task is done
        self._unfinished = f"{directory}/_{file_name}"  # until then: Spark ignores names that begin with _
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
            self._files.delete_file(self._final)  # of an earlier run of this task, which had failed rows

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
