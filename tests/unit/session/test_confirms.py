"""Confirms of messages whose queues become safe in different ways, and at different times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.frames import decode_methods, split_frames
from tests.support.rounds import Rounds as PipelinedRounds
from warren.amqp import methods as m
from warren.amqp.writer import Output
from warren.broker.outcome import AFTER_NEXT_ROUND, ON_ITS_WAY
from warren.broker.safety import when_all_safe
from warren.session.confirms import Confirms


class Rounds:
    """A safety whose rounds end when a test says so."""

    def __init__(self) -> None:
        self.gathering = 1
        self.behind = False
        self.waiters: list[Callable[[int], None]] = []

    def when_safe(self, callback: Callable[[int], None], ended: Callable[[], None] | None = None) -> None:
        self.waiters.append(callback)

    def when_ready(self, callback: Callable[[], None]) -> None:
        self.when_safe(lambda _number: callback())

    def end_round(self) -> None:
        waiters, self.waiters = self.waiters, []
        self.gathering += 1
        for tell in waiters:
            tell(self.gathering - 1)


class Scene:
    def __init__(self) -> None:
        self.output = Output([], None)
        self.confirms = Confirms(self.output, 1)
        self.confirms.on = True
        self.here, self.there = Rounds(), Rounds()

    def publish(self, *outcomes: tuple[int, Rounds]) -> None:
        """Publish one message; each of its queues has one of these outcomes."""
        for outcome, safety in outcomes:
            self.confirms.note(outcome, safety)
        self.confirms.published += 1

    def confirmed(self) -> list[tuple[int, bool]]:
        """Tag and `multiple` of each ack since the last call."""
        frames = split_frames(b"".join(self.output.take()))
        acks = decode_methods(frames)
        return [(ack.delivery_tag, ack.multiple) for ack in acks if isinstance(ack, m.BasicAck)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_message_is_confirmed_when_it_is_safe_in_all_its_queues(scene: Scene) -> None:
    scene.publish((ON_ITS_WAY, scene.here), (ON_ITS_WAY, scene.there))
    scene.confirms.end_batch()
    scene.here.end_round()
    assert scene.confirmed() == []
    scene.there.end_round()
    assert scene.confirmed() == [(1, False)]


def test_confirms_do_not_overtake_each_other(scene: Scene) -> None:
    scene.publish((ON_ITS_WAY, scene.there))
    scene.confirms.end_batch()
    scene.publish((ON_ITS_WAY, scene.here))
    scene.confirms.end_batch()
    scene.publish()
    scene.confirms.end_batch()
    scene.here.end_round()
    assert scene.confirmed() == []
    scene.there.end_round()
    assert scene.confirmed() == [(3, True)]


def test_one_safety_may_take_a_round_longer(scene: Scene) -> None:
    scene.publish((AFTER_NEXT_ROUND, scene.here), (ON_ITS_WAY, scene.there), (ON_ITS_WAY, scene.here))
    scene.confirms.end_batch()
    scene.here.end_round()
    scene.there.end_round()
    assert scene.confirmed() == []
    scene.here.end_round()
    assert scene.confirmed() == [(1, False)]


def test_round_after_the_next_is_the_one_that_gathers_when_the_first_is_over(scene: Scene) -> None:
    """Deduplication writes its note then. A shard has several batches on their way at once."""
    rounds, told = PipelinedRounds(), list[bool]()
    scene.confirms.note(AFTER_NEXT_ROUND, rounds)
    scene.confirms.published += 1
    when_all_safe([(rounds, True)], lambda: told.append(True), told.clear)
    scene.confirms.end_batch()
    for _ in range(3):
        rounds.begin_next()
        rounds.when_safe(lambda _number: None)
    rounds.end(1)
    for number in (2, 3):
        rounds.end(number)
        assert (scene.confirmed(), told) == ([], [])
    rounds.end(4)
    assert (scene.confirmed(), told) == ([(1, False)], [True])


def test_batches_in_one_round_are_confirmed_together(scene: Scene) -> None:
    for _ in range(3):
        scene.publish((ON_ITS_WAY, scene.here))
        scene.confirms.end_batch()
    assert len(scene.here.waiters) == 1
    scene.here.end_round()
    assert scene.confirmed() == [(3, True)]


def test_safety_that_is_behind_is_known(scene: Scene) -> None:
    assert not scene.confirms.is_behind()
    scene.publish((ON_ITS_WAY, scene.here))
    scene.here.behind = True
    assert scene.confirms.is_behind()


def test_answer_waits_for_every_safety_and_for_its_round() -> None:
    here, there, told = Rounds(), Rounds(), list[bool]()
    when_all_safe([(here, True), (there, False)], lambda: told.append(True), told.clear)
    here.end_round()
    there.end_round()
    assert told == []
    here.end_round()
    assert told == [True]
