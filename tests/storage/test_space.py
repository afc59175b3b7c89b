"""Space on disk comes back when messages are done with."""

from __future__ import annotations

from tests.storage.bulk import NumberConsumer, NumberPublisher
from tests.storage.home import Home, bytes_below, connected, eventually
from tests.support.channel import AmqpChannel
from warren.amqp import methods as m

KIBIBYTE = 1024
MEBIBYTE = KIBIBYTE * KIBIBYTE
BODY_BYTES = 10_000
MESSAGES = 3_000
FULL_BYTES_MIN = MESSAGES * BODY_BYTES
EMPTY_BYTES_MAX = 65 * KIBIBYTE


def fill(home: Home, channel: AmqpChannel) -> None:
    channel.declare("q", exclusive=False, durable=True)
    NumberPublisher(channel, "q", body_bytes=BODY_BYTES).publish(range(MESSAGES))
    assert bytes_below(home.queue_directory()) > FULL_BYTES_MIN


def wait_until_empty(home: Home, channel: AmqpChannel) -> None:
    eventually(lambda: bytes_below(home.queue_directory()) < EMPTY_BYTES_MAX, channel, "no files are left")


def test_acks_give_the_space_back(home: Home) -> None:
    with home.broker() as process, connected(process) as channel, connected(process) as other:
        fill(home, other)
        for _ in NumberConsumer(channel, "q", body_bytes=BODY_BYTES).drain(MESSAGES):
            pass
        wait_until_empty(home, other)


def test_purge_gives_the_space_back(home: Home) -> None:
    with home.life() as channel:
        fill(home, channel)
        assert channel.call(m.QueuePurge(queue="q"), m.QueuePurgeOk).message_count == MESSAGES
        wait_until_empty(home, channel)
        NumberPublisher(channel, "q").publish([1])
    with home.life() as channel:
        assert channel.get("q").body.startswith(b"00000001")
        assert channel.try_get("q") is None


def test_delete_removes_the_directory(home: Home) -> None:
    with home.life() as channel:
        fill(home, channel)
        channel.call(m.QueueDelete(queue="q"), m.QueueDeleteOk)
        eventually(lambda: not list((home.data_dir / "queues").iterdir()), channel, "the directory is gone")


def test_unacked_messages_keep_only_their_own_segments(home: Home) -> None:
    """Every segment has about a hundred messages here; of two segments one message each is not acked."""
    home.settings["segment_bytes"] = MEBIBYTE
    kept = (150, 2_150)
    with home.life() as channel:
        fill(home, channel)
        channel.send(m.BasicConsume(queue="q", consumer_tag="c", arguments={}))
        channel.expect(m.BasicConsumeOk)
        for number in range(MESSAGES):
            delivery = channel.expect_delivery()
            if number not in kept:
                channel.send(m.BasicAck(delivery_tag=delivery.method.delivery_tag))
        channel.call(m.BasicCancel(consumer_tag="c"), m.BasicCancelOk)
        eventually(lambda: len(home.segments()) == len(kept), channel, "only two segments are left")
    with home.life() as channel:
        for number in kept:
            got = channel.get("q")
            assert int(got.body[:8]) == number
            assert got.method.redelivered
        assert channel.try_get("q") is None
