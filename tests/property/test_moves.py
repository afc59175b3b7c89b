"""Whenever the broker is killed during a move, each message is in one of the two queues afterwards.

Nothing that was moved and acked comes back, either. After a power cut marks may be lost: then a message may
be in both queues, but never in none.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.stage import LOG, Stage, numbers, staged
from tests.support.jobs import start_job
from warren.broker import message_job
from warren.broker.message_job import Kind

pytestmark = pytest.mark.slow

MESSAGES = 60
SELECTORS = st.sampled_from([None, "number < 40", "odd", "number > 50 OR number < 10"])


def fill(stage: Stage, *, priorities: bool) -> None:
    for queue in ("a", "b"):
        stage.client.queue(queue, {"x-max-priority": 2} if priorities else {})
    for number in range(MESSAGES):
        stage.client.put(
            "a", b"%d" % number, headers={"number": number, "odd": bool(number % 2)}, priority=number % 3
        )


def go_on(stage: Stage, rng: Random, steps: int) -> None:
    """Let the event loop and the disk go on, in small steps."""
    for _ in range(steps):
        if stage.machine.disk.is_busy and rng.random() < 0.3:
            stage.machine.disk.work()
            stage.machine.store.commit.completed()
        else:
            stage.world.turn()


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(0, 60),
    selector=SELECTORS,
    priorities=st.booleans(),
    power=st.booleans(),
    consumed=st.booleans(),
)
def test_killed_move_leaves_each_message_in_one_queue(
    seed: int, steps: int, selector: str | None, priorities: bool, power: bool, consumed: bool
) -> None:
    rng = Random(seed)
    with TemporaryDirectory() as path, patch.object(message_job, "BATCH_BYTES_MAX", rng.randint(1, 30)):
        for stage in staged(Path(path), LOG):
            fill(stage, priorities=priorities)
            consumer = stage.connect()
            if consumed:
                consumer.start("b", no_ack=True)
            job = start_job(stage.node, Kind.MOVE, "a", "b", selector=selector)
            go_on(stage, rng, steps)
            client = stage.kill(rng, power=power)
            acked = consumer.delivered()
            left, moved = client.drain("a"), client.drain("b")
            if power:
                assert {*left, *moved, *acked} == set(numbers(MESSAGES))
            else:
                assert sorted(left + moved + acked, key=int) == numbers(MESSAGES)
                assert len(moved) + len(acked) <= job.done
