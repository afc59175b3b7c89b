"""A pack gives back what it was given, in order, whatever the messages have in common."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from warren.broker.memory import Memory
from warren.broker.message import Message
from warren.broker.pack import Pack

NAMES = (b"\0", b"\x01e", b"\x01k")
PROPERTIES = (b"\0\0", b"\x10\0\x02")
BODY_SIZES = st.sampled_from([0, 1, 16, 255, 256, 257, 5_000, 70_000])
messages = st.builds(
    lambda exchange, key, properties, size, persistent: Message(
        exchange, key, properties, bytes((size % 251,)) * size, persistent
    ),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.sampled_from(PROPERTIES),
    BODY_SIZES,
    st.booleans(),
)


def fields(message: Message) -> tuple[bytes, bytes, bytes, bytes, bool]:
    return (
        message.exchange,
        message.routing_key,
        message.properties,
        message.body,
        message.persistent,
    )


@given(
    st.lists(
        st.one_of(st.none(), messages, st.tuples(messages, st.integers(1, 600), st.integers(1, 3))),
        max_size=40,
    )
)
def test_pack_against_a_deque(steps: list[Message | tuple[Message, int, int] | None]) -> None:
    """A message goes in, or one many times over, behind a gap or not, or (None) the first comes out."""
    memory = Memory(1 << 30)
    pack, model, position = Pack(memory), deque[tuple[int, Message]](), 0
    for step in steps:
        if step is None:
            if model:
                check_pop(pack, model)
        else:
            message, times, gap = step if isinstance(step, tuple) else (step, 1, 1)
            for _ in range(times):
                position += gap
                pack.append(message, position)
                model.append((position, message))
        assert (pack.count, pack.bytes) == (len(model), sum(len(message.body) for _, message in model))
        assert memory.used_bytes >= pack.bytes
    while model:
        check_pop(pack, model)
    assert (pack.count, pack.bytes) == (0, 0)
    assert memory.used_bytes == 0


def check_pop(pack: Pack, model: deque[tuple[int, Message]]) -> None:
    position, message = model.popleft()
    assert pack.next_position == position
    assert fields(pack.pop()) == fields(message)


def test_pack_that_is_dropped_gives_its_memory_back() -> None:
    memory = Memory(1 << 30)
    pack = Pack(memory)
    for position in range(1, 1_000):
        pack.append(Message(b"\0", b"\x01k", b"\0\0", bytes(100 * (position % 20)), False), position)
    assert memory.used_bytes > pack.bytes
    del pack
    assert memory.used_bytes == 0


def test_message_with_a_large_body_is_not_copied() -> None:
    pack, message = Pack(Memory(1 << 30)), Message(b"\0", b"\x01k", b"\0\0", bytes(10_000), False)
    pack.append(message, 1)
    assert pack.pop() is message
