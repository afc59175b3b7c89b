"""Both ends of a link prove that they know the cluster's secret, and nobody else can."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster.config import RunId, StoreId
from warren.cluster.handshake import HELLO_BYTES_MAX, Called, Caller, WrongSecret
from warren.cluster.messages import Beacon, Hello
from warren.cluster.wire import PREFIX, decode, encode
from warren.cluster.wire_values import WireError

SECRET = b"known to all nodes of the cluster"
A = Hello("c1", StoreId("a"), RunId("a.1"), 1, 1)
B = Hello("c1", StoreId("b"), RunId("b.1"), 1, 1)


def caller(hello: Hello = A, secret: bytes = SECRET, challenge: bytes = b"1" * 32) -> Caller:
    return Caller(hello, secret, challenge)


def called(hello: Hello = B, secret: bytes = SECRET, challenge: bytes = b"2" * 32) -> Called:
    return Called(hello, secret, challenge)


@given(st.integers(1, 300), st.integers(1, 300))
def test_both_ends_know_each_other_however_the_bytes_are_split(first: int, second: int) -> None:
    a, b = caller(), called()
    frame = encode(Beacon(1.0, ()))
    to_b, to_a, was_proved = a.mine, b"", False
    while to_b or to_a:
        to_a += b.feed(to_b[:first])
        to_b = to_b[first:]
        proof = a.feed(to_a[:second])
        to_a = to_a[second:]
        if proof:
            assert not was_proved, "a proof is given once"
            was_proved = True
            to_b += proof + frame
    assert (a.peer, b.peer, a.version, b.version) == (B, A, 1, 1)
    assert decode(b.buffer) == Beacon(1.0, ())


def test_caller_that_does_not_know_the_secret_is_refused() -> None:
    b = called()
    b.feed(caller().mine)
    with pytest.raises(WrongSecret):
        b.feed(b"x" * 32)
    assert b.peer is None


def test_called_end_that_does_not_know_the_secret_is_noticed_before_anything_is_proved_to_it() -> None:
    a, impostor = caller(), called(secret=b"guessed, and not right")
    with pytest.raises(WrongSecret):
        a.feed(impostor.feed(a.mine))
    assert a.peer is None


def test_proofs_of_another_link_are_of_no_use() -> None:
    a, b = caller(), called()
    proof = a.feed(b.feed(a.mine))
    replayed = called(challenge=b"3" * 32)
    replayed.feed(a.mine)
    with pytest.raises(WrongSecret):
        replayed.feed(proof)


def test_proof_of_one_side_is_not_that_of_the_other() -> None:
    a, b = caller(), called()
    answer = b.feed(a.mine)
    with pytest.raises(WrongSecret):
        b.feed(answer[-32:])


def test_changed_hello_is_noticed() -> None:
    """Whoever is in between cannot have one store taken for another."""
    a, b = caller(), called()
    changed = caller(A._replace(store=StoreId("c")))
    with pytest.raises(WrongSecret):
        a.feed(b.feed(changed.mine))


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (A._replace(cluster="c2"), "another cluster"),
        (A._replace(lowest=7, highest=8), "versions 7 to 8"),
        (A._replace(store=StoreId("b")), "this store itself"),
    ],
)
def test_node_that_does_not_belong_here_is_told_apart(hello: Hello, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        called().feed(caller(hello).mine)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        PREFIX.pack(HELLO_BYTES_MAX + 1, 0),
        encode(Beacon(1.0, ())) + bytes(32),
    ],
    ids=["http", "too long", "no hello"],
)
def test_others_are_refused_at_their_first_bytes(data: bytes) -> None:
    with pytest.raises(WireError):
        called().feed(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_wait_for_more(data: bytes) -> None:
    end = called()
    with contextlib.suppress(WireError):
        assert end.feed(data) == b""
    assert end.peer is None
