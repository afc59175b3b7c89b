"""A node asks etcd at once while it answers, and ever more rarely while it does not."""

from __future__ import annotations

from itertools import count

from tests.unit.cluster.nodes import RECORD, RUNS, A, B, C, NoLogs
from warren.cluster.config import Known, Leadership
from warren.cluster.effects import Cas, CasAnswer, ReadRecord
from warren.cluster.participant import Participant
from warren.cluster.settings import Settings
from warren.cluster.transactions import Outcome
from warren.cluster.tries import Tries

SHARDS = 64
TICK = 0.05
LED = RECORD._replace(epoch=1, leader=Leadership(B, RUNS[B]))


def made() -> Tries:
    return Tries(patience=1.0, first=0.05, last=0.5)


def test_all_may_ask_an_etcd_that_answers() -> None:
    tries = made()
    for _ in range(3):
        assert tries.may_ask(0.0)
        tries.asks(0.0)
    assert tries.may_ask(0.9), "it may take its time"


def test_waits_between_tries_double_up_to_a_bound() -> None:
    tries = made()
    tries.asks(0.0)
    tries.failed(0.0)
    waits = []
    for _ in range(6):
        waits.append(tries.wait)
        assert not tries.may_ask(tries.next_at - 0.01)
        tries.asks(tries.next_at)
        tries.failed(tries.next_at - tries.wait)
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]


def test_what_was_asked_at_once_fails_as_one() -> None:
    tries = made()
    for _ in range(9):
        tries.asks(0.0)
    for _ in range(9):
        tries.failed(0.01)
    assert tries.wait == 0.05


def test_an_etcd_that_says_nothing_is_asked_by_one_at_a_time() -> None:
    tries = made()
    tries.asks(0.0)
    assert tries.may_ask(1.1)
    tries.asks(1.1)
    assert not tries.may_ask(1.1)


def test_after_an_answer_all_ask_again() -> None:
    tries = made()
    tries.asks(0.0)
    tries.failed(0.0)
    tries.answered()
    assert tries.may_ask(0.0)


def asked(*, answers: bool) -> list[int]:
    """How often a node asks etcd in each tick of ten seconds, from the moment that the leader of all shards
    is gone. Etcd answers that others were faster, or cannot be connected to.
    """
    numbers = count(1)
    participant = Participant(Leadership(A, RUNS[A]), lambda: next(numbers), settings=Settings())
    for number in range(SHARDS):
        participant.add_shard(number, NoLogs(), epoch=1, now=0.0).learn(Known(1, LED), 0.0)
    participant.peer_gone(B, 0.1)
    asked = []
    for turn in range(200):
        now = 0.1 + turn * TICK
        effects = participant.take_effects()
        asked.append(sum(isinstance(effect, (Cas, ReadRecord)) for effect in effects))
        for effect in effects:
            if isinstance(effect, Cas):
                elected = Known(2, LED._replace(epoch=2, leader=Leadership(C, RUNS[C])))
                answer: CasAnswer = elected if answers else Outcome.NOT_SENT
                participant.shards[effect.shard].cas_answered(effect.revision, answer, now)
        participant.tick(now + TICK)
    return asked


def test_all_shards_stand_at_once_for_a_leader_that_is_gone() -> None:
    assert asked(answers=True)[0] == SHARDS


def test_a_node_that_cannot_connect_to_etcd_asks_rarely() -> None:
    first, *then = asked(answers=False)
    assert first == SHARDS
    assert max(then) == 1
    settings = Settings()
    assert sum(then) <= 10.0 / settings.etcd_wait_last + 10
