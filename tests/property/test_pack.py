"""A pack gives back what it was given, in order, whatever the messages have in common."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from warren.broker.memory import Memory
from warren.broker.message import Message
from warren.broker.pack import Pack, PackBrowser
from warren.broker.store import NOTHING_TO_READ

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


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), messages, st.integers(1, 3)),
            st.tuples(st.sampled_from(["pop", "take out", "browse"]), st.none(), st.integers(0, 50)),
        ),
        max_size=60,
    )
)
def test_pack_whose_middle_is_taken_against_a_list(steps: list[tuple[str, Message | None, int]]) -> None:
    """Messages come and go at any place, while somebody looks at them one after the other."""
    memory = Memory(1 << 30)
    pack = Pack(memory)
    browser = PackBrowser(pack)
    model: list[tuple[int, int, Message]] = []  # position, location, message
    position = seen = 0
    for action, message, number in steps:
        if message is not None:
            position += number
            model.append((position, pack.append(message, position), message))
        elif action == "browse":
            seen = check_browser(browser, model, seen)
        elif model and action == "pop":
            first, _, expected = model.pop(0)
            assert pack.next_position == first
            assert fields(pack.pop()) == fields(expected)
        elif model:
            _, location, expected = model.pop(number % len(model))
            taken = pack.take_out(location, 77)
            assert taken is not None
            assert fields(taken) == fields(expected)
            if model and model[0][1] < location:  # its place is still there
                assert pack.take_out(location, 77) is None
        assert pack.count == len(model)
        assert not model or pack.next_position == model[0][0]
    del browser, pack
    assert memory.used_bytes == 0


def check_browser(browser: PackBrowser, model: list[tuple[int, int, Message]], seen: int) -> int:
    """It sees the next one behind what it has seen; where that is."""
    left = [item for item in model if item[0] > seen]
    if not left:
        assert browser.next_position(seen) == NOTHING_TO_READ
        return seen
    position, location, message = left[0]
    assert browser.next_position(seen) == position
    assert fields(browser.read()) == fields(message)
    assert browser.location == location
    return position


def test_messages_keep_the_time_at_which_they_came() -> None:
    pack = Pack(Memory(1 << 30))
    times = [5, 5, 6, 1_000, 1_000, 2**40]
    for position, time_ms in enumerate(times, 1):
        pack.append(Message(b"\0", b"\x01k", b"\0\0", b"x", False, time_ms), position)
    assert [pack.pop().time_ms for _ in times] == times
