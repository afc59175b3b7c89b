"""Reads the slices of a partition as record batches, and reports what is missing.

A torn record at the end of the newest segment is the end of the data. Anything else that is missing from a
stream is an error; with the option `failOnDataLoss` set to false, it is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from warren.pipeline.segments.decode import END, FULL, MORE, OPEN_END, Decoder, find_sound
from warren.pipeline.segments.errors import DataLoss, SegmentGone, Unreadable
from warren.pipeline.segments.log import OpenSegment, QueueRef, SegmentLog, Slice
from warren.pipeline.segments.plan import Partition, Portion
from warren.pipeline.segments.schema import SCHEMA
from warren.storage.format import (
    HEADER_BYTES,
    POSITION_AT,
    POSITIONS_MAX,
    RECORD_HEAD_BYTES,
    SEGMENT_MAGIC,
    UnknownVersion,
    check_header,
    uint64_at,
)

ROWS_MAX = 16_384
BATCH_BYTES_MAX = 4 << 20

log = logging.getLogger("warren.pipeline")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which messages a reader wants, and which of their columns."""

    columns: tuple[str, ...] = ()  # all, if none are named
    not_null: frozenset[str] = frozenset()  # columns that Arrow's schema declares NOT NULL
    headers: bool = True  # whether to decode headers; if not, their columns are null
    body: bool = True  # likewise
    since_ms: int = 0  # messages from this time on,
    until_ms: int = OPEN_END  # and before this time
    fail_on_data_loss: bool = True


def read_partition(source: SegmentLog, partition: Partition, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    with closing(source):
        for portion in partition.portions:
            yield from read_portion(source, portion, wanted)


def read_portion(source: SegmentLog, portion: Portion, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    return _chosen(_read_portion(source, portion, wanted), wanted)


def _chosen(batches: Iterator[pa.RecordBatch], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    if not wanted.columns:
        return batches
    schema = pa.schema(
        SCHEMA.field(name).with_nullable(name not in wanted.not_null) for name in wanted.columns
    )
    return (
        pa.RecordBatch.from_arrays([batch.column(name) for name in wanted.columns], schema=schema)
        for batch in batches
    )


def _read_portion(source: SegmentLog, portion: Portion, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    queue = portion.queue
    decoder = _decoder(queue, wanted)
    loss = Loss(queue, fail=wanted.fail_on_data_loss)
    for part in portion.slices:
        yield from _read_slice(source, queue, part, decoder, loss)
    last = decoder.take()
    if last is not None:
        yield last


def read_records(queue: QueueRef, data: bytes, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Decode records that are in no segment, such as those of consumed messages."""
    return _chosen(_read_records(queue, data, wanted), wanted)


def _read_records(queue: QueueRef, data: bytes, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    decoder = _decoder(queue, wanted)
    decoder.seek(0, 1, OPEN_END, b"")
    used = decoder.feed(data, 0)
    while decoder.state == FULL:
        yield decoder.take()
        used = decoder.feed(data, used)
    assert used == len(data), "all of it is records"
    last = decoder.take()
    if last is not None:
        yield last


def _decoder(queue: QueueRef, wanted: Wanted) -> Decoder:
    return Decoder(
        queue.vhost,
        queue.name,
        queue.stream_id,
        headers=wanted.headers,
        body=wanted.body,
        rows_max=ROWS_MAX,
        bytes_max=BATCH_BYTES_MAX,
        since_ms=wanted.since_ms,
        until_ms=wanted.until_ms,
    )


def _read_slice(
    source: SegmentLog, queue: QueueRef, part: Slice, decoder: Decoder, loss: Loss
) -> Iterator[pa.RecordBatch]:
    read_to = part.first_offset
    try:
        with closing(source.open(queue, part.segment)) as opened:
            for batch in _SliceReader(opened, part, decoder, loss, source.chunk_bytes).batches():
                yield batch
                read_to = decoder.above
    except SegmentGone:
        loss.gone(max(read_to, part.first_offset), part.end_offset)


class Loss:
    """Reports missing messages: by an error, or by a warning if the user allows data loss."""

    def __init__(self, queue: QueueRef, *, fail: bool) -> None:
        self.queue = queue
        self.fail = fail

    def gone(self, first: int, end: int) -> None:
        """Offsets were deleted before they were read. In a queue that is no loss: its messages go when they
        are done with.
        """
        if self.queue.is_stream:
            self.tell(
                DataLoss(
                    f"offsets {first} to {end - 1} of {self.queue} are gone: retention overtook the reader"
                )
            )

    def made_anew(self, offset: int) -> None:
        """The stream was deleted, and there is another one under its name."""
        self.tell(
            DataLoss(
                f"{self.queue} was deleted and made anew: offsets from {offset} on of the one that was read "
                "are gone"
            )
        )

    def beyond(self, offset: int, end: int) -> None:
        """The stream has fewer messages than were read: it is another stream, or it has lost its end."""
        self.tell(
            DataLoss(
                f"offset {offset} of {self.queue} is behind its end, {end}: was it deleted and made anew?"
            )
        )

    def ends_early(self, name: str, at: int, first: int, end: int, *, whole: bool) -> None:
        """A segment ends before the next one begins. If its last record is `whole`, a power cut took messages
        that were not synced. Those were neither confirmed nor delivered, so this is no data loss.
        """
        what = f"{name} ends at byte {at}: offsets {first} to {end - 1} of {self.queue} are missing"
        if whole:
            log.warning("%s", what)
        else:
            self.tell(DataLoss(what))

    def tell(self, error: DataLoss) -> None:
        if self.fail:
            raise error
        log.warning("%s; going on without them", error.what)


class _SliceReader:
    def __init__(
        self, opened: OpenSegment, part: Slice, decoder: Decoder, loss: Loss, chunk_bytes: int
    ) -> None:
        self.opened = opened
        self.part = part  # the slice to read
        self.decoder = decoder  # shared by the slices of a portion: a batch may span them
        self.loss = loss
        self.chunk_bytes = chunk_bytes  # how much to read at a time
        self.at = 0  # the byte at which the next read begins

    def batches(self) -> Iterator[pa.RecordBatch]:
        decoder = self.decoder
        used = self._seek()
        while decoder.state != END:
            data = self._next()
            used = decoder.feed(data, used)
            while decoder.state == FULL:
                yield decoder.take()
                used = decoder.feed(data, used)
            self.at += used
            used = 0
            if decoder.state != END and not self._goes_on():
                break

    def _seek(self) -> int:
        """Go to where the slice begins; returns how many bytes to skip there: the file's header, or none."""
        part = self.part
        self.at, above = self.opened.locate(part)
        if self.at > HEADER_BYTES and not self._begins(above):
            self.at, above = HEADER_BYTES, part.segment.base - 1
        self.decoder.seek(above, part.first_offset + 1, part.end_offset + 1, part.segment.acked)
        if self.at > HEADER_BYTES:
            return 0
        self.at = 0
        return HEADER_BYTES

    def _begins(self, above: int) -> bool:
        """Check that a record begins at `at` that is not behind the first wanted one: `at` may come from a
        mark of an earlier stream, which was deleted and made anew.
        """
        head = self.opened.read(self.at, RECORD_HEAD_BYTES)
        position = uint64_at(head, POSITION_AT)
        return above < position and (not self.loss.queue.is_stream or position <= self.part.first_offset + 1)

    def _next(self) -> bytes:
        wanted = max(self.chunk_bytes, self.decoder.needed)
        data = self.opened.read(self.at, min(wanted, self.part.segment.size_bytes - self.at))
        if self.at == 0:
            self._check_header(data)
        return data

    def _check_header(self, data: bytes) -> None:
        try:
            check_header(SEGMENT_MAGIC, data, self.part.segment.base)
        except UnknownVersion as error:
            raise Unreadable(f"{self.opened.name}: {error}") from None
        except ValueError as error:
            self.loss.tell(DataLoss(f"{self.opened.name}: header is not sound: {error}"))

    def _goes_on(self) -> bool:
        """Whether to read on: the next record is only partly read, or there is a sound one behind damage."""
        decoder, size = self.decoder, self.part.segment.size_bytes
        if decoder.state == MORE and decoder.needed <= size - self.at:
            return True
        rest = self.opened.read(self.at, size - self.at) if self.at < size else b""
        found = find_sound(rest, 0, decoder.above, self.part.segment.base + POSITIONS_MAX)
        if found >= 0:
            self.loss.tell(
                DataLoss(
                    f"{self.opened.name} is damaged at byte {self.at}, behind offset {decoder.above - 1}"
                )
            )
            self.at += found
            return True
        if self.loss.queue.is_stream and decoder.above < self.part.end_offset:
            first = max(decoder.above, self.part.first_offset)
            self.loss.ends_early(
                self.opened.name, self.at, first, self.part.end_offset, whole=self.at == size
            )
        return False
