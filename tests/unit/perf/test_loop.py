from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from warren.client.errors import ClientError
from warren.perf.loop import Loop


class Recorder:
    """Notes each time it is served, in a list that it shares with others."""

    def __init__(self, name: str, loop: Loop, served: list[str]) -> None:
        self.name = name
        self.socket, self.other_end = socket.socketpair()
        self.served = served
        self.loop = loop
        self.errors: list[ClientError] = []
        loop.add(self)

    def fileno(self) -> int:
        return self.socket.fileno()

    def on_readable(self) -> None:
        self.served.append(f"{self.name} reads")
        if self.socket.recv(100) == b"fail":
            raise ClientError("as told")

    def on_writable(self) -> None:
        self.served.append(f"{self.name} writes")

    def fail(self, error: ClientError) -> None:
        self.errors.append(error)

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            self.loop.remove(self)
            self.socket.close()
            self.other_end.close()


@pytest.fixture
def served() -> list[str]:
    return []


@pytest.fixture
def pair(loop: Loop, served: list[str]) -> Iterator[tuple[Recorder, Recorder]]:
    with (
        closing(Recorder("first", loop, served)) as first,
        closing(Recorder("second", loop, served)) as second,
    ):
        yield first, second


def test_all_readers_are_served_before_any_writer(
    loop: Loop, pair: tuple[Recorder, Recorder], served: list[str]
) -> None:
    for recorder in pair:
        loop.watch_writable(recorder, wanted=True)
        recorder.other_end.send(b"data")
    loop.turn(1)
    assert [entry.split()[1] for entry in served] == ["reads", "reads", "writes", "writes"]


def test_a_failure_is_told_to_the_one_it_happened_to(loop: Loop, pair: tuple[Recorder, Recorder]) -> None:
    pair[0].other_end.send(b"fail")
    pair[1].other_end.send(b"data")
    loop.turn(1)
    assert [len(recorder.errors) for recorder in pair] == [1, 0]
    assert loop.errors == pair[0].errors


def test_who_was_removed_is_not_served(
    loop: Loop, pair: tuple[Recorder, Recorder], served: list[str]
) -> None:
    for recorder in pair:
        recorder.other_end.send(b"data")
    loop.remove(pair[0])
    loop.turn(1)
    loop.add(pair[0])
    assert served == ["second reads"]


@pytest.mark.parametrize("timeout_s", [0, 0.0001, 0.002])
def test_a_turn_without_events_ends(
    loop: Loop, pair: tuple[Recorder, Recorder], served: list[str], timeout_s: float
) -> None:
    loop.turn(timeout_s)
    assert served == []


def test_leaving_the_loop_closes_all(served: list[str]) -> None:
    with Loop() as loop:
        recorder = Recorder("only", loop, served)
    assert recorder.fileno() == -1
