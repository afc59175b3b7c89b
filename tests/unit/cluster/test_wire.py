"""Frames between nodes: what is written is read, whatever the splits; anything else is refused clearly."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cluster.golden_frames import FRAMES
from warren.broker.queue_figures import QueueFigures
from warren.cluster.config import RunId, StoreId
from warren.cluster.messages import (
    Ack,
    Acks,
    Batch,
    Beacon,
    Echo,
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
from warren.cluster.wire import (
    PREFIX,
    FrameSplitter,
    agreed_version,
    decode,
    encode,
    encode_batch,
)
from warren.cluster.wire_changes import COPIED_BYTES_MAX, pack_changes
from warren.cluster.wire_values import WireError
from warren.storage.format import checksum
from warren.storage.replication import (
    AllMarks,
    Drop,
    LogId,
    Marks,
    NamedOffset,
    Records,
    RemoveLog,
    SegmentState,
    SetAside,
    Truncate,
)

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
NAMES = st.text(max_size=60)
AMQP_NAMES = st.binary(max_size=255).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
IDS = st.text(min_size=1, max_size=20)
LOGS = st.builds(LogId, U64, NAMES)
DATA = st.binary(max_size=100) | st.binary(min_size=COPIED_BYTES_MAX, max_size=COPIED_BYTES_MAX + 100)
CHANGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(Records, LOGS, U64, U64, U64, U64, U32, DATA),
    st.builds(Marks, LOGS, U64, U64, DATA),
    st.builds(Drop, LOGS, U64, U64),
    st.builds(NamedOffset, LOGS, AMQP_NAMES, st.none() | U64),
    st.builds(Truncate, LOGS, U64, U64, U64),
    st.builds(SetAside, LOGS, U64, U64),
    st.builds(AllMarks, LOGS, U64, U64, DATA),
    st.builds(RemoveLog, LOGS),
)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
TERMS = st.lists(st.tuples(U16, U64), max_size=5).map(tuple)
SEGMENTS = st.lists(st.builds(SegmentState, U64, U64, U64, st.booleans()), max_size=4).map(tuple)
HELLOS = st.builds(
    lambda cluster, store, run, versions: Hello(cluster, StoreId(store), RunId(run), *sorted(versions)),
    NAMES,
    IDS,
    IDS,
    st.tuples(U16, U16),
)
SHORT = st.binary(max_size=255).map(lambda data: bytes((len(data),)) + data)
LETTERS = st.builds(Letter, SHORT, SHORT, DATA, DATA, st.booleans(), st.booleans())
FIGURES = st.builds(QueueFigures, *[U64] * len(QueueFigures._fields))
MESSAGES: st.SearchStrategy[Any] = st.one_of(
    HELLOS,
    st.builds(Beacon, TIMES, TERMS),
    st.builds(Echo, TIMES, TERMS),
    st.builds(
        Inventory, U16, U64, U64, st.lists(st.tuples(LOGS, SEGMENTS), max_size=3).map(tuple), st.booleans()
    ),
    st.builds(Refused, U16, U64),
    st.builds(Batch, U16, U64, U64, U64, st.lists(CHANGES, max_size=5).map(tuple), st.booleans()),
    st.builds(Acks, st.lists(st.builds(Ack, U16, U64, U64, U64), max_size=4).map(tuple)),
    st.builds(
        lambda line, queue, names, places, letters: Letters(
            line, queue, names[0], names[1], places[0], places[1], letters
        ),
        U64,
        U64,
        st.tuples(AMQP_NAMES, AMQP_NAMES),
        st.lists(U64, min_size=2, max_size=2, unique=True).map(sorted),
        st.lists(LETTERS, max_size=3).map(tuple),
    ),
    st.builds(LettersDone, U64, U64, st.booleans()),
    st.builds(
        Figures, st.lists(st.builds(FiguresOfQueue, AMQP_NAMES, AMQP_NAMES, FIGURES), max_size=3).map(tuple)
    ),
)


@given(MESSAGES)
def test_what_is_written_is_read(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.builds(Batch, U16, U64, U64, U64, st.lists(CHANGES, max_size=5).map(tuple), st.booleans()))
def test_changes_that_were_packed_before_make_the_same_frame(batch: Batch) -> None:
    assert b"".join(encode_batch(batch, pack_changes(batch.changes))) == encode(batch)


@given(st.lists(MESSAGES, max_size=4), st.data())
def test_messages_are_found_however_they_are_split(messages: list[Message], data: st.DataObject) -> None:
    stream = b"".join(map(encode, messages))
    splitter, found = FrameSplitter(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert found == messages
    assert not splitter.chunks


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_clear_error(data: bytes) -> None:
    body = PREFIX.pack(len(data), checksum(data)) + data
    for read in (decode, FrameSplitter(1000).feed):
        try:
            read(body)
        except WireError:
            continue


@given(MESSAGES, st.data())
def test_a_changed_byte_is_noticed(message: Message, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        decode(bytes(frame))


@given(MESSAGES, st.data())
def test_a_body_that_is_cut_or_longer_is_refused(message: Message, data: st.DataObject) -> None:
    body = encode(message)[PREFIX.size :]
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    for wrong in (cut, body + b"\0"):
        with pytest.raises(WireError):
            decode(PREFIX.pack(len(wrong), checksum(wrong)) + wrong)


@pytest.mark.parametrize("length", [0, 19, 1001, 2**32 - 1])
def test_a_length_that_cannot_be_is_refused_before_it_is_waited_for(length: int) -> None:
    with pytest.raises(WireError):
        FrameSplitter(1000).feed(struct.pack(">II", length, 0))


def test_a_frame_may_not_say_that_it_has_more_than_it_has() -> None:
    body = struct.pack(">BBHQQ", 7, 0, 0, 0, 0) + struct.pack(">I", 60_000)
    with pytest.raises(WireError, match="60000"):
        decode(PREFIX.pack(len(body), checksum(body)) + body)


def test_a_name_that_is_too_long_is_not_written() -> None:
    with pytest.raises(WireError):
        encode(Batch(0, 1, 1, 1, (RemoveLog(LogId(1, "x" * 256)),), in_step=False))


@pytest.mark.parametrize(("message", "frame"), FRAMES)
def test_frames_of_version_1_stay_as_they_are(message: Message, frame: str) -> None:
    assert encode(message).hex() == frame
    assert decode(bytes.fromhex(frame)) == message


def test_nodes_speak_the_highest_version_that_both_know() -> None:
    ours = Hello("c", StoreId("s"), RunId("r"), 1, 3)
    assert agreed_version(ours, ours._replace(lowest=2, highest=5)) == 3
    assert agreed_version(ours, ours._replace(lowest=1, highest=1)) == 1
    with pytest.raises(WireError, match="versions 4 to 5"):
        agreed_version(ours, ours._replace(lowest=4, highest=5))
    with pytest.raises(WireError, match="another cluster"):
        agreed_version(ours, ours._replace(cluster="d"))
