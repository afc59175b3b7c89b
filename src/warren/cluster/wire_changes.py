"""Changes of logs, as bytes in a batch: a tag, the log, and what the kind of change has."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from warren.cluster.wire_values import U8, U32, U64, Reader, WireError, pack_data, pack_log, pack_name
from warren.storage.replication import (
    AllMarks,
    Drop,
    LogChange,
    LogId,
    Marks,
    NamedOffset,
    Records,
    RemoveLog,
    SetAside,
    Truncate,
)

RECORDS, MARKS, DROP, OFFSET, TRUNCATE, SET_ASIDE, ALL_MARKS, REMOVE = range(1, 9)
CHANGE_SIZE_MIN = 10  # a tag, and a log without a part
COPIED_BYTES_MAX = 1024  # of records: below that, a piece of its own costs more than the copying

_CHANGE = struct.Struct(">BQB")  # a tag, a queue's number, and the length of the name of a part
_RECORDS = struct.Struct(">QQQQII")
_AT = struct.Struct(">QQ")
_CUT = struct.Struct(">QQQ")


def _write_records(change: Records) -> bytes:
    return _before_records(change) + change.data


def _before_records(change: Records) -> bytes:
    _, base, epoch, offset, last, count, data = change
    return _RECORDS.pack(base, epoch, offset, last, count, len(data))


def _write_marks(change: Marks | AllMarks) -> bytes:
    return _AT.pack(change.base, change.epoch) + pack_data(change.data)


def _write_place(change: Drop | SetAside) -> bytes:
    return _AT.pack(change.base, change.epoch)


def _write_offset(change: NamedOffset) -> bytes:
    is_known = change.offset is not None
    return pack_name(change.name) + U8.pack(is_known) + U64.pack(change.offset or 0)


def _write_truncate(change: Truncate) -> bytes:
    return _CUT.pack(change.base, change.epoch, change.length)


def _write_nothing(_: RemoveLog) -> bytes:
    return b""


_CHANGE_ENCODERS: dict[type, tuple[int, Callable[..., bytes]]] = {
    Records: (RECORDS, _write_records),
    Marks: (MARKS, _write_marks),
    Drop: (DROP, _write_place),
    NamedOffset: (OFFSET, _write_offset),
    Truncate: (TRUNCATE, _write_truncate),
    SetAside: (SET_ASIDE, _write_place),
    AllMarks: (ALL_MARKS, _write_marks),
    RemoveLog: (REMOVE, _write_nothing),
}


def pack_change(change: LogChange) -> bytes:
    tag, write = _CHANGE_ENCODERS[type(change)]
    return _before_change(tag, change.log) + write(change)


def _before_change(tag: int, log: LogId) -> bytes:
    queue, part = log
    return U8.pack(tag) + pack_log(log) if part else _CHANGE.pack(tag, queue, 0)


def pack_changes(changes: Sequence[LogChange]) -> list[bytes]:
    """The changes of a batch, in pieces: bytes of many records are not copied once more."""
    pieces: list[bytes] = []
    short = [U32.pack(len(changes))]
    for change in changes:
        if isinstance(change, Records) and len(change.data) > COPIED_BYTES_MAX:
            short += (_before_change(RECORDS, change.log), _before_records(change))
            pieces += (b"".join(short), change.data)
            short = []
        else:
            short.append(pack_change(change))
    if short:
        pieces.append(b"".join(short))
    return pieces


def _read_records(log: LogId, reader: Reader) -> Records:
    base, epoch, offset, last, count, size = reader.take(_RECORDS)
    return Records(log, base, epoch, offset, last, count, reader.raw(size))


def _read_marks(log: LogId, reader: Reader) -> Marks:
    base, epoch = reader.take(_AT)
    return Marks(log, base, epoch, reader.long_data())


def _read_all_marks(log: LogId, reader: Reader) -> AllMarks:
    base, epoch = reader.take(_AT)
    return AllMarks(log, base, epoch, reader.long_data())


def _read_drop(log: LogId, reader: Reader) -> Drop:
    base, epoch = reader.take(_AT)
    return Drop(log, base, epoch)


def _read_set_aside(log: LogId, reader: Reader) -> SetAside:
    base, epoch = reader.take(_AT)
    return SetAside(log, base, epoch)


def _read_offset(log: LogId, reader: Reader) -> NamedOffset:
    name = reader.name()
    (is_known,), (offset,) = reader.take(U8), reader.take(U64)
    return NamedOffset(log, name, offset if is_known else None)


def _read_truncate(log: LogId, reader: Reader) -> Truncate:
    base, epoch, length = reader.take(_CUT)
    return Truncate(log, base, epoch, length)


def _read_remove(log: LogId, _: Reader) -> RemoveLog:
    return RemoveLog(log)


_CHANGE_DECODERS: dict[int, Callable[[LogId, Reader], LogChange]] = {
    RECORDS: _read_records,
    MARKS: _read_marks,
    DROP: _read_drop,
    OFFSET: _read_offset,
    TRUNCATE: _read_truncate,
    SET_ASIDE: _read_set_aside,
    ALL_MARKS: _read_all_marks,
    REMOVE: _read_remove,
}


def read_change(reader: Reader) -> LogChange:
    tag, queue, part_length = reader.take(_CHANGE)
    read = _CHANGE_DECODERS.get(tag)
    if read is None:
        raise WireError(f"a change of an unknown kind: {tag}")
    return read(LogId(queue, reader.text_of(part_length)), reader)
