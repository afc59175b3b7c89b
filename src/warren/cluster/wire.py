"""Frames between nodes.

    length:u32 crc:u32 | kind:u8 flags:u8 shard:u16 epoch:u64 index:u64 payload

`length` counts what follows the crc, and the crc (CRC-32C) is of that. Numbers are big-endian. `index` is the
number of a batch in its session, the session of an inventory, or a line of letters. Both ends say hello
first, with the versions that they speak; the highest that both speak holds for the link. The frame of a hello
never changes.

A frame that is not well formed raises `WireError`: the other end is no node of ours, or is broken. Every
length is checked against what is there before anything is made of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from warren.broker.queue_figures import QueueFigures
from warren.cluster.config import ID_LENGTH_MAX, RunId, StoreId
from warren.cluster.messages import (
    Ack,
    Acks,
    Batch,
    Beacon,
    Echo,
    Farewell,
    Figures,
    FiguresOfQueue,
    Hello,
    Inventory,
    Letter,
    Letters,
    LettersDone,
    Message,
    Refused,
)
from warren.cluster.wire_changes import CHANGE_SIZE_MIN, pack_changes, read_change
from warren.cluster.wire_values import (
    FRAME_BYTES_MAX,
    U8,
    U16,
    U32,
    U64,
    Reader,
    WireError,
    pack_data,
    pack_log,
    pack_name,
    pack_text,
)
from warren.storage.format import checksum, checksum_within
from warren.storage.replication import SegmentState

VERSION: Final = 1
TERMS_MAX: Final = 65_536  # in a beacon: as many as there can be shards
ACKS_MAX: Final = 65_536
CHANGES_MAX: Final = 1_000_000
SEGMENTS_MAX: Final = 1_000_000
LETTERS_MAX: Final = 10_000  # in a frame
LETTER_SIZE_MIN: Final = 17  # its flags, and four lengths
QUEUES_MAX: Final = 10_000  # in a frame

PREFIX: Final = struct.Struct(">II")
HEADER: Final = struct.Struct(">BBHQQ")
FRAME: Final = struct.Struct(">IIBBHQQ")  # both
_BATCH: Final = struct.Struct(">BBHQQQ")  # a header, and the session
_TERM: Final = struct.Struct(">HQ")
_ACK: Final = struct.Struct(">HQQQ")
_SEGMENT: Final = struct.Struct(">QQQB")
_TIME: Final = struct.Struct(">d")
_LINE: Final = struct.Struct(">QQQ")
_FIGURES: Final = struct.Struct(f">{len(QueueFigures._fields)}Q")

HELLO, BEACON, ECHO, INVENTORY, REFUSED, BATCH, ACKS, LETTERS, LETTERS_DONE, FAREWELL, FIGURES = range(1, 12)
LAST_PAGE = IN_STEP = IS_HERE = PERSISTENT = 1  # flags
DIED = 2


# --- writing ---


def encode(message: Message) -> bytes:
    """The frame of a message."""
    if isinstance(message, Batch):
        return b"".join(encode_batch(message, pack_changes(message.changes)))
    return _frame(*_ENCODERS[type(message)](message))


def _frame(head: _Head, payload: bytes) -> bytes:
    body = HEADER.pack(*head) + payload
    _check_length(len(body))
    return PREFIX.pack(len(body), checksum(body)) + body


def _check_length(length: int) -> None:
    if length > FRAME_BYTES_MAX:
        raise WireError(f"a frame of {length} bytes is too large")


class _Head(NamedTuple):
    kind: int
    flags: int = 0
    shard: int = 0
    epoch: int = 0
    number: int = 0


_Frame: TypeAlias = tuple[_Head, bytes]


def _encode_hello(hello: Hello) -> _Frame:
    texts = b"".join(map(pack_text, (hello.cluster, hello.store, hello.run)))
    return _Head(HELLO), (texts + U16.pack(hello.lowest) + U16.pack(hello.highest))


def _encode_beacon(message: Beacon | Echo) -> _Frame:
    kind = BEACON if isinstance(message, Beacon) else ECHO
    terms = b"".join(_TERM.pack(*term) for term in message.terms)
    return _Head(kind), _TIME.pack(message.sent_at) + U32.pack(len(message.terms)) + terms


def _encode_inventory(page: Inventory) -> _Frame:
    parts = [U32.pack(len(page.logs))]
    for log, segments in page.logs:
        parts.append(pack_log(log) + U32.pack(len(segments)))
        parts.extend(_SEGMENT.pack(*segment) for segment in segments)
    flags = LAST_PAGE if page.is_last else 0
    return _Head(INVENTORY, flags, page.shard, page.epoch, page.session), b"".join(parts)


def _encode_refused(message: Refused) -> _Frame:
    return _Head(REFUSED, 0, message.shard, message.epoch), b""


def encode_batch(batch: Batch, changes: Sequence[bytes]) -> list[bytes]:
    """The frame of a batch, in pieces. Its changes, as `pack_changes` gives them, are the same for all
    followers in step, so that they are packed once.
    """
    flags = IN_STEP if batch.in_step else 0
    first = _BATCH.pack(BATCH, flags, batch.shard, batch.epoch, batch.number, batch.session)
    length, crc = len(first), checksum(first)
    for piece in changes:
        length += len(piece)
        crc = checksum(piece, crc)
    _check_length(length)
    return [PREFIX.pack(length, crc) + first, *changes]


def _encode_acks(message: Acks) -> _Frame:
    acks = b"".join(_ACK.pack(*ack) for ack in message.acks)
    return _Head(ACKS), U32.pack(len(message.acks)) + acks


def _encode_letters(message: Letters) -> _Frame:
    parts = [
        _LINE.pack(message.queue, message.settled, message.first),
        pack_name(message.vhost),
        pack_name(message.name),
        U32.pack(len(message.letters)),
    ]
    for letter in message.letters:
        parts.append(U8.pack(PERSISTENT * letter.persistent | DIED * letter.died))
        parts += map(pack_data, (letter.exchange, letter.routing_key, letter.properties, letter.body))
    return _Head(LETTERS, number=message.line), b"".join(parts)


def _encode_letters_done(message: LettersDone) -> _Frame:
    return _Head(LETTERS_DONE, IS_HERE * message.is_here, number=message.line), U64.pack(message.up_to)


def _encode_figures(message: Figures) -> _Frame:
    parts = [U32.pack(len(message.queues))]
    for queue in message.queues:
        parts += (pack_name(queue.vhost), pack_name(queue.name), _FIGURES.pack(*queue.figures))
    return _Head(FIGURES), b"".join(parts)


_ENCODERS: dict[type, Callable[..., _Frame]] = {
    Hello: _encode_hello,
    Beacon: _encode_beacon,
    Echo: _encode_beacon,
    Inventory: _encode_inventory,
    Refused: _encode_refused,
    Acks: _encode_acks,
    Farewell: lambda _: (_Head(FAREWELL), b""),
    Letters: _encode_letters,
    LettersDone: _encode_letters_done,
    Figures: _encode_figures,
}


# --- reading ---


def decode(data: bytes, at: int = 0, end: int | None = None) -> Message:
    """The message of one whole frame, which is somewhere in some bytes, or all of them."""
    reader = Reader(data, at, end)
    length, crc, kind, flags, shard, epoch, number = reader.take(FRAME)
    checked = at + PREFIX.size
    if length != reader.limit - checked or length > FRAME_BYTES_MAX:
        raise WireError("a frame has another length than it says")
    if checksum_within(data, checked, reader.limit) != crc:
        raise WireError("a frame is damaged")
    read = _DECODERS.get(kind)
    if read is None:
        raise WireError(f"a frame of an unknown kind: {kind}")
    message = read(reader, _Head(kind, flags, shard, epoch, number))
    reader.end()
    return message


def _decode_hello(reader: Reader, _: _Head) -> Hello:
    cluster, store, run = reader.text(), reader.text(), reader.text()
    (lowest,), (highest,) = reader.take(U16), reader.take(U16)
    if not 0 < len(store) <= ID_LENGTH_MAX or not 0 < len(run) <= ID_LENGTH_MAX or lowest > highest:
        raise WireError("a hello makes no sense")
    return Hello(cluster, StoreId(store), RunId(run), lowest, highest)


def _decode_terms(reader: Reader) -> tuple[float, tuple[tuple[int, int], ...]]:
    (sent_at,) = reader.take(_TIME)
    if not math.isfinite(sent_at):
        raise WireError("a time is no number")
    count = reader.count(TERMS_MAX, _TERM.size)
    terms = tuple(_TERM.iter_unpack(reader.raw(count * _TERM.size)))
    return sent_at, terms


def _decode_beacon(reader: Reader, _: _Head) -> Beacon:
    return Beacon(*_decode_terms(reader))


def _decode_echo(reader: Reader, _: _Head) -> Echo:
    return Echo(*_decode_terms(reader))


def _decode_inventory(reader: Reader, head: _Head) -> Inventory:
    logs = []
    for _ in range(reader.count(SEGMENTS_MAX, 13)):
        log = reader.log()
        count = reader.count(SEGMENTS_MAX, _SEGMENT.size)
        segments = _SEGMENT.iter_unpack(reader.raw(count * _SEGMENT.size))
        logs.append((log, tuple(SegmentState(b, e, length, bool(d)) for b, e, length, d in segments)))
    return Inventory(head.shard, head.epoch, head.number, tuple(logs), bool(head.flags & LAST_PAGE))


def _decode_refused(_: Reader, head: _Head) -> Refused:
    return Refused(head.shard, head.epoch)


def _decode_batch(reader: Reader, head: _Head) -> Batch:
    (session,) = reader.take(U64)
    changes = []
    for _ in range(reader.count(CHANGES_MAX, CHANGE_SIZE_MIN)):
        changes.append(read_change(reader))  # noqa: PERF401 - compiled, a loop takes less than a generator
    return Batch(head.shard, head.epoch, session, head.number, tuple(changes), bool(head.flags & IN_STEP))


def _decode_acks(reader: Reader, _: _Head) -> Acks:
    count = reader.count(ACKS_MAX, _ACK.size)
    return Acks(tuple(Ack(*values) for values in _ACK.iter_unpack(reader.raw(count * _ACK.size))))


def _decode_letters(reader: Reader, head: _Head) -> Letters:
    queue, settled, first = reader.take(_LINE)
    vhost, name = reader.name(), reader.name()
    letters = tuple(_read_letter(reader) for _ in range(reader.count(LETTERS_MAX, LETTER_SIZE_MIN)))
    if not settled < first:
        raise WireError("letters come again that were done with")
    return Letters(head.number, queue, vhost, name, settled, first, letters)


def _read_letter(reader: Reader) -> Letter:
    (flags,) = reader.take(U8)
    exchange, routing_key = reader.long_data(), reader.long_data()
    properties, body = reader.long_data(), reader.long_data()
    for name in (exchange, routing_key):
        if not name or name[0] != len(name) - 1:
            raise WireError("a letter's exchange or routing key is no short string")
    return Letter(exchange, routing_key, properties, body, bool(flags & PERSISTENT), bool(flags & DIED))


def _decode_letters_done(reader: Reader, head: _Head) -> LettersDone:
    (up_to,) = reader.take(U64)
    return LettersDone(head.number, up_to, bool(head.flags & IS_HERE))


def _decode_figures(reader: Reader, _: _Head) -> Figures:
    return Figures(tuple(_read_figures(reader) for _ in range(reader.count(QUEUES_MAX, _FIGURES.size + 2))))


def _read_figures(reader: Reader) -> FiguresOfQueue:
    vhost, name = reader.name(), reader.name()
    return FiguresOfQueue(vhost, name, QueueFigures(*reader.take(_FIGURES)))


_DECODERS: dict[int, Callable[[Reader, _Head], Message]] = {
    HELLO: _decode_hello,
    BEACON: _decode_beacon,
    ECHO: _decode_echo,
    INVENTORY: _decode_inventory,
    REFUSED: _decode_refused,
    BATCH: _decode_batch,
    ACKS: _decode_acks,
    LETTERS: _decode_letters,
    LETTERS_DONE: _decode_letters_done,
    FAREWELL: lambda _reader, _head: Farewell(),
    FIGURES: _decode_figures,
}


class FrameSplitter:
    """Cuts what arrives over a link into messages, however it is split."""

    def __init__(self, largest: int = FRAME_BYTES_MAX) -> None:
        self.chunks: list[bytes] = []  # the beginning of a frame, as it came
        self.missing = 0  # bytes that have to come before it is worth looking again
        self.largest = largest  # frame, in bytes

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now."""
        if self.chunks:
            self.chunks.append(data)
            self.missing -= len(data)
            if self.missing > 0:
                return []
            data = b"".join(self.chunks)
            self.chunks.clear()
        messages: list[Message] = []
        at, size = 0, len(data)
        self.missing = PREFIX.size
        while size - at >= PREFIX.size:
            length, _ = PREFIX.unpack_from(data, at)
            if not HEADER.size <= length <= self.largest:
                raise WireError(f"a frame says that it has {length} bytes")
            end = at + PREFIX.size + length
            if end > size:
                self.missing = PREFIX.size + length
                break
            messages.append(decode(data, at, end))
            at = end
        if at < size:
            self.chunks.append(data[at:])
            self.missing -= size - at
        return messages


def agreed_version(ours: Hello, theirs: Hello) -> int:
    """The version that both speak; `WireError` if there is none, or the other is of another cluster."""
    if ours.cluster != theirs.cluster:
        raise WireError(f"the other node is of another cluster: {theirs.cluster!r}")
    version = min(ours.highest, theirs.highest)
    if version < max(ours.lowest, theirs.lowest):
        raise WireError(f"the other node speaks versions {theirs.lowest} to {theirs.highest} only")
    return version
