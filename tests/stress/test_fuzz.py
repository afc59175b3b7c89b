"""Mutated and random frames, tables and headers, straight into a broker without sockets.

    WARREN_FUZZ_FRAMES=1000000   how many frames to send; a hundred thousand unless told
    WARREN_FUZZ_SEED=7           only this round, as a failure names it

Each round has a broker of its own and many connections one after another. Beside them one connection
publishes and consumes all the time, and must not notice anything.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable

import pytest

from tests.support.fakes import FakeBroker
from tests.support.frames import (
    BODY,
    CLASS_BASIC,
    CONTENT_HEAD,
    FRAME_HEAD,
    FRAME_MAX,
    HEADER,
    HEARTBEAT,
    METHOD,
    decode_methods,
    encode_frame,
    encode_header,
    method_frame,
    published,
)
from tests.support.fuzz import FuzzClient
from warren.amqp import methods as m
from warren.amqp.table import LENGTH
from warren.broker.queue import Queue
from warren.session.channel import Channel
from warren.session.connection import Connection

FRAMES = int(os.environ.get("WARREN_FUZZ_FRAMES", "100000"))
SEED = os.environ.get("WARREN_FUZZ_SEED")
CONVERSATIONS_PER_ROUND = 400
BLOCKS_SPARE = 150  # caches of the interpreter; one object for each conversation would be more


class Witness:
    """The connection that works on: every message it publishes is confirmed, and comes back to it."""

    QUEUE = "the witness' own"

    def __init__(self, broker: FakeBroker) -> None:
        self.client = broker.connect("witness").open()
        self.count = 0
        self.client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        self.client.declare(self.QUEUE, exclusive=True)
        self.client.consume(self.QUEUE)
        self.client.frames()

    def work(self) -> None:
        self.count += 1
        body = b"%d" % self.count
        self.client.feed(published("", self.QUEUE, body))
        frames = self.client.frames()
        assert decode_methods(frames) == [
            m.BasicAck(delivery_tag=self.count, multiple=False),
            m.BasicDeliver(
                consumer_tag="c",
                delivery_tag=self.count,
                redelivered=False,
                exchange="",
                routing_key=self.QUEUE,
            ),
        ]
        assert frames[-1].payload == body
        self.client.send(m.BasicAck(delivery_tag=self.count))


def converse(broker: FakeBroker, witness: Witness, seed: str) -> int:
    client = FuzzClient(broker, seed)
    try:
        client.run()
        witness.work()
        check_nothing_is_left(broker)
    except Exception as error:  # noqa: BLE001 - whatever it is, what matters is how to repeat it
        again = f"WARREN_FUZZ_SEED={seed.partition('/')[0]} python -m pytest tests/stress/test_fuzz.py"
        cause = (broker.world.errors or [error])[0]
        raise AssertionError(f"conversation {seed}: {cause!r}; to repeat it: {again}") from cause
    return client.frames


def check_nothing_is_left(broker: FakeBroker) -> None:
    """Of a connection that is gone: no consumer, no unacked message, no queue of its own."""
    node, vhost = broker.node, broker.vhost
    assert not broker.world.errors
    assert len(node.clients) == vhost.connections == 1
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


def random_type(dice: random.Random) -> bytes:
    return encode_frame(
        dice.choice([kind for kind in range(256) if kind not in {1, 2, 3, 8}]), 1, dice.randbytes(9)
    )


def wrong_end(dice: random.Random) -> bytes:
    return method_frame(1, m.BasicQos())[:-1] + bytes((dice.randrange(0xCE),))


def over_frame_max(dice: random.Random) -> bytes:
    return FRAME_HEAD.pack(dice.choice((1, 2, 3, 8)), 1, dice.randrange(FRAME_MAX + 1, 2**32))


def cut_arguments(dice: random.Random) -> bytes:
    payload = m.QueueBind(queue="q", exchange="e", arguments={"a": 1}).encode()
    return encode_frame(METHOD, 1, payload[: dice.randrange(4, len(payload))])


def bytes_behind_arguments(dice: random.Random) -> bytes:
    return encode_frame(METHOD, 1, m.QueueDeclare(queue="q", arguments={}).encode() + dice.randbytes(3))


def unknown_method(dice: random.Random) -> bytes:
    ids = dice.randrange(2**16), dice.randrange(2**16)
    return encode_frame(METHOD, 1, m.METHOD_ID.pack(*ids) + dice.randbytes(9))


def method_of_the_broker(dice: random.Random) -> bytes:
    kinds: tuple[m.Method, ...] = (m.QueueBindOk(), m.BasicGetEmpty(), m.TxCommitOk(), m.BasicQosOk())
    return method_frame(1, dice.choice(kinds))


def closed_channel(dice: random.Random) -> bytes:
    return method_frame(dice.randrange(2, 2**16), m.BasicQos())


def content_from_nowhere(dice: random.Random) -> bytes:
    return encode_frame(dice.choice((HEADER, BODY)), 1, encode_header(dice.randrange(2**64)))


def wrong_class(dice: random.Random) -> bytes:
    header = encode_header(0, class_id=dice.choice((0, 10, 50, 61, 65_535)))
    return method_frame(1, m.BasicPublish()) + encode_frame(HEADER, 1, header)


def body_too_long(dice: random.Random) -> bytes:
    size = dice.randrange(1, 1000)
    body = encode_frame(BODY, 1, bytes(size + dice.randrange(1, 100)))
    return method_frame(1, m.BasicPublish()) + encode_frame(HEADER, 1, encode_header(size)) + body


def heartbeat_on_a_channel(dice: random.Random) -> bytes:
    return encode_frame(HEARTBEAT, dice.randrange(1, 2**16), b"")


def unsound_headers(dice: random.Random) -> bytes:
    properties = b"\x20\0" + LENGTH.pack(9) + b"\x01a" + dice.choice((b"?", b"\0", b"F")) + dice.randbytes(6)
    head = CONTENT_HEAD.pack(CLASS_BASIC, 0, 0)
    return method_frame(1, m.BasicPublish()) + encode_frame(HEADER, 1, head + properties)


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (random_type, 501),
        (wrong_end, 501),
        (over_frame_max, 501),
        (cut_arguments, 502),
        (bytes_behind_arguments, 502),
        (unsound_headers, 502),
        (unknown_method, 503),
        (method_of_the_broker, 503),
        (closed_channel, 504),
        (content_from_nowhere, 505),
        (wrong_class, 505),
        (body_too_long, 505),
        (heartbeat_on_a_channel, 505),
    ],
)
def test_what_is_broken_ends_in_the_right_close(broken: Callable[[random.Random], bytes], code: int) -> None:
    broker = FakeBroker()
    dice = random.Random(code)
    for _ in range(50):
        client = broker.connect().open()
        client.feed(broken(dice))
        (close,) = client.methods(0, 1)
        assert isinstance(close, m.ConnectionClose)
        assert close.reply_code == code
        client.send(m.ConnectionCloseOk(), 0)
        assert client.link.is_closed
    assert not broker.node.clients


def live_objects() -> int:
    """Of the kinds that would be left of a connection; other tests may have left some."""
    gc.collect()
    return sum(isinstance(thing, (Connection, Channel, Queue)) for thing in gc.get_objects())


def test_rounds_of_nonsense_leave_no_object_behind() -> None:
    """Entries and messages are unknown to the garbage collector, but the allocator counts all."""
    before = live_objects()
    blocks = []
    for _ in range(3):
        run_round("leak", 200)
        assert live_objects() == before
        blocks.append(sys.getallocatedblocks())
    assert blocks[2] - blocks[1] < BLOCKS_SPARE, blocks
