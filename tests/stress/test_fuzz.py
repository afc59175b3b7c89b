"""Mutated and random frames, tables and headers, straight into a broker without sockets.

    WARREN_FUZZ_FRAMES=1000000   how many frames to send; a hundred thousand unless told
    WARREN_FUZZ_SEED=7           only this round, as a failure names it

Each round has a broker of its own and many connections one after another. Beside them one connection publishes
and consumes all the time, and must not notice anything.
"""

from __future__ import annotations

import gc
import os
import sys

import pytest

from tests.support.amqp import METHOD
from tests.support.fake_world import FakeBroker
from tests.support.frames import handshake, method_frame, publish_frames, split_frames
from tests.support.fuzz import FuzzClient
from warren.amqp import methods as m
from warren.broker.queue import Queue
from warren.broker.session.channel import Channel
from warren.broker.session.connection import Connection

FRAMES = int(os.environ.get("WARREN_FUZZ_FRAMES", "100000"))
SEED = os.environ.get("WARREN_FUZZ_SEED")
CONVERSATIONS_PER_ROUND = 400
BLOCKS_SPARE = 2_000  # caches of the interpreter; one leaked object a conversation would be far more


class Witness:
    """The connection that works on: every message it publishes is confirmed, and comes back to it."""

    QUEUE = "the witness' own"

    def __init__(self, broker: FakeBroker) -> None:
        self.peer = broker.connect("witness")
        self.count = 0
        for step in handshake():
            self.peer.feed(step)
        declare = m.QueueDeclare(queue=self.QUEUE, exclusive=True, arguments={})
        consume = m.BasicConsume(queue=self.QUEUE, no_ack=False, arguments={})
        for method in (m.ChannelOpen(), m.ConfirmSelect(), declare, consume):
            self.peer.feed(method_frame(1, method))
        self.peer.link.take()

    def work(self) -> None:
        self.count += 1
        body = b"%d" % self.count
        publish = m.BasicPublish(exchange="", routing_key=self.QUEUE)
        self.peer.feed(b"".join(publish_frames(1, publish, body)))
        frames = list(split_frames(self.peer.link.take()))
        methods = [m.decode_method(frame.payload) for frame in frames if frame.kind == METHOD]
        assert methods == [
            m.BasicAck(delivery_tag=self.count, multiple=False),
            m.BasicDeliver(
                consumer_tag=methods[-1].consumer_tag,  # type: ignore[attr-defined]  # equal, if it is a deliver
                delivery_tag=self.count,
                redelivered=False,
                exchange="",
                routing_key=self.QUEUE,
            ),
        ]
        assert frames[-1].payload == body
        self.peer.feed(method_frame(1, m.BasicAck(delivery_tag=self.count)))


def converse(broker: FakeBroker, witness: Witness, seed: str) -> int:
    client = FuzzClient(broker, seed)
    try:
        client.run()
        witness.work()
        if broker.world.failures:
            raise broker.world.failures[0]
        check_nothing_is_left(broker)
    except Exception as error:
        again = f"WARREN_FUZZ_SEED={seed.partition('/')[0]} python -m pytest tests/stress/test_fuzz.py"
        cause = (broker.world.failures or [error])[0]
        raise AssertionError(f"conversation {seed}: {cause!r}; to repeat it: {again}") from cause
    return client.frames


def check_nothing_is_left(broker: FakeBroker) -> None:
    """Of a connection that is gone: no consumer, no unacked message, no queue of its own."""
    node, vhost = broker.node, broker.node.vhosts["/"]
    assert len(node.connections) == vhost.connections == 1
    assert not node.touched_queues
    assert not node.dirty_outputs
    assert not vhost.reply_queues
    for queue in vhost.queues.values():
        if queue.name != Witness.QUEUE:
            assert (queue.unacked, queue.is_consumed, queue.owner) == (0, False, None), queue.name
            assert not queue.flow.held
        for binding in queue.incoming:
            assert vhost.exchanges[binding.source.name].bindings[binding.identity] is binding


def run_round(name: str, conversations: int = CONVERSATIONS_PER_ROUND, frames_max: int = sys.maxsize) -> int:
    broker = FakeBroker()
    witness = Witness(broker)
    frames = 0
    for number in range(conversations):
        frames += converse(broker, witness, f"{name}/{number}")
        if frames >= frames_max:
            break
    broker.stop()
    return frames


def test_no_frame_whatever_it_is_breaks_the_broker_or_disturbs_another_connection() -> None:
    if SEED is not None:
        run_round(SEED)
        pytest.skip("only one round was asked for")
    frames = rounds = 0
    while frames < FRAMES:
        frames += run_round(str(rounds), frames_max=FRAMES - frames)
        rounds += 1


def test_rounds_of_nonsense_leave_no_object_behind() -> None:
    """Entries and messages are unknown to the garbage collector, but the allocator counts all."""
    blocks = []
    for _ in range(3):
        run_round("leak", 200)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        left = [o for o in gc.get_objects() if isinstance(o, (Connection, Channel, Queue))]
        assert not left
    assert blocks[2] - blocks[1] < BLOCKS_SPARE, blocks
