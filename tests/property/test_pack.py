"""A pack gives back what it was given, in order, whatever the messages have in common."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

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


@given(st.lists(st.one_of(st.none(), messages, st.tuples(messages, st.integers(1, 600))), max_size=40))
def test_pack_against_a_deque(steps: list[Message | tuple[Message, int] | None]) -> None:
    """A message goes in, or one many times over, or (None) the first comes out."""
    pack, model = Pack(), deque[Message]()
    for step in steps:
        if step is None:
            if model:
                assert fields(pack.pop()) == fields(model.popleft())
        else:
            message, times = step if isinstance(step, tuple) else (step, 1)
            for _ in range(times):
                pack.append(message)
                model.append(message)
        assert (pack.count, pack.bytes) == (len(model), sum(len(message.body) for message in model))
    while model:
        assert fields(pack.pop()) == fields(model.popleft())
    assert (pack.count, pack.bytes) == (0, 0)


def test_message_with_a_large_body_is_not_copied() -> None:
    pack, message = Pack(), Message(b"\0", b"\x01k", b"\0\0", bytes(10_000), False)
    pack.append(message)
    assert pack.pop() is message
