"""How long messages live: x-message-ttl of the queue, and `expiration` of the message."""

from __future__ import annotations

import pytest

from tests.rules.stage import TO_DEAD, Stage, numbers, why
from warren.amqp.table import Table


def living(queue_ms: int | None) -> Table:
    return {**TO_DEAD, **({} if queue_ms is None else {"x-message-ttl": queue_ms})}


@pytest.mark.parametrize(
    ("queue_ms", "message_ms", "lives_ms"),
    [(1000, None, 1000), (None, 1000, 1000), (1000, 500, 500), (500, 1000, 500), (700, 700, 700)],
)
def test_lower_of_queue_ttl_and_expiration_holds(
    stage: Stage, queue_ms: int | None, message_ms: int | None, lives_ms: int
) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", living(queue_ms))
    client.put("q", b"m", expiration=message_ms)
    stage.pass_ms(lives_ms - 1)
    assert queue.message_count == 1
    stage.pass_ms(2)
    assert queue.message_count == 0
    (dead,) = client.drain_all("dead")
    assert why(dead) == [("q", "expired", 1)]


def test_message_without_ttl_stays(stage: Stage) -> None:
    queue = stage.client.queue("q")
    stage.client.put("q", *numbers(5))
    stage.pass_ms(10**12)
    assert queue.message_count == 5


def test_longest_ttl_does_not_end_early(stage: Stage) -> None:
    longest_ms = 100 * 365 * 24 * 3600 * 1000
    queue = stage.client.queue("q", {"x-message-ttl": longest_ms})
    stage.client.put("q", *numbers(5))
    stage.pass_ms(longest_ms - 1)
    assert queue.message_count == 5
    stage.pass_ms(2)
    assert queue.message_count == 0


def test_time_counts_from_arrival_for_each_message(stage: Stage) -> None:
    client = stage.client
    queue = client.queue("q", {"x-message-ttl": 1000})
    for number in numbers(8):
        client.put("q", number)
        stage.pass_ms(100)
    for left in range(7, -1, -1):
        stage.pass_ms(201 if left == 7 else 100)
        assert queue.message_count == left
        assert queue.message_bytes == left


@pytest.mark.parametrize("how", ["get", "consume"])
def test_expired_message_never_reaches_a_client(stage: Stage, how: str) -> None:
    client = stage.client
    client.queue("q")
    client.put("q", *numbers(6), expiration=1000)
    client.put("q", b"lives")
    stage.pass_ms(1001)
    if how == "get":
        assert client.drain("q") == [b"lives"]
    else:
        client.start("q")
        assert client.delivered() == [b"lives"]


@pytest.mark.parametrize("how", ["get", "consume", "prefetch"])
def test_expired_message_never_reaches_a_client_though_the_timer_is_late(stage: Stage, how: str) -> None:
    client = stage.client
    client.queue("q")
    client.put("q", *numbers(2), expiration=1000)
    client.put("q", b"lives")
    client.put("q", *numbers(5), expiration=1000)
    stage.world.time += 2  # but no timer runs
    if how == "get":
        assert client.drain("q") == [b"lives"]
    else:
        client.start("q", prefetch=1 if how == "prefetch" else 0)
        assert client.delivered() == [b"lives"]


@pytest.mark.parametrize("ahead", [1, 3, 4, 12])
def test_short_lived_message_expires_on_time_behind_long_lived_ones(stage: Stage, ahead: int) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", TO_DEAD)
    client.put("q", *numbers(ahead))
    client.put("q", b"short", expiration=1000)
    client.put("q", b"last")
    stage.pass_ms(999)
    assert queue.message_count == ahead + 2
    stage.pass_ms(2)
    assert queue.message_count == ahead + 1
    assert client.drain("dead") == [b"short"]
    assert client.drain("q") == [*numbers(ahead), b"last"]


def test_messages_expire_in_the_order_of_their_times(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", TO_DEAD)
    lives = [500, 100, 700, 300, 600, 200, 800, 400]
    for ms in lives:
        client.put("q", b"%d" % ms, expiration=ms)
    for count, ms in enumerate(sorted(lives), 1):
        stage.pass_ms(101 if ms == 100 else 100)
        assert client.drain("dead") == [b"%d" % ms]
        assert queue.message_count == len(lives) - count


@pytest.mark.parametrize("by", ["queue", "message"])
def test_messages_of_one_turn_expire_at_once_and_die_in_the_order_of_the_queue(stage: Stage, by: str) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", living(1000 if by == "queue" else None))
    expiration = 1000 if by == "message" else None
    client.put_together([client.message(body, expiration=expiration) for body in numbers(9)], "q")
    stage.pass_ms(1001)
    assert client.drain("dead") == numbers(9)


@pytest.mark.parametrize("by", ["queue", "message"])
class TestTtlOfZero:
    def declare(self, stage: Stage, by: str) -> int | None:
        """Declare the queue; the expiration that messages are to be published with."""
        stage.client.queue("dead")
        stage.client.queue("q", living(0 if by == "queue" else None))
        return 0 if by == "message" else None

    def test_delivers_to_a_consumer_that_waits(self, stage: Stage, by: str) -> None:
        expiration = self.declare(stage, by)
        taker = stage.connect()
        taker.start("q")
        stage.client.put_together(
            [stage.client.message(body, expiration=expiration) for body in numbers(5)], "q"
        )
        assert taker.delivered() == numbers(5)
        assert stage.client.count("dead") == 0

    def test_expires_at_once_if_nobody_waits(self, stage: Stage, by: str) -> None:
        expiration = self.declare(stage, by)
        stage.client.put("q", *numbers(5), expiration=expiration)
        stage.pass_ms(1)
        assert stage.queues["q"].message_count == 0
        assert stage.client.drain("dead") == numbers(5)

    def test_expires_if_the_consumer_is_at_its_limit(self, stage: Stage, by: str) -> None:
        expiration = self.declare(stage, by)
        taker = stage.connect(prefetch=2)
        taker.start("q")
        stage.client.put("q", *numbers(4), expiration=expiration)
        stage.pass_ms(1)
        taker.ack(2, multiple=True)
        assert taker.delivered() == numbers(2)
        assert stage.client.drain("dead") == numbers(2, 2)

    def test_message_that_is_returned_expires(self, stage: Stage, by: str) -> None:
        expiration = self.declare(stage, by)
        taker = stage.connect()
        taker.start("q")
        stage.client.put("q", b"m", expiration=expiration)
        stage.pass_ms(10)
        taker.requeue(1)
        assert taker.delivered() == [b"m"]
        (dead,) = stage.client.drain_all("dead")
        assert why(dead) == [("q", "expired", 1)]


def test_unacked_messages_do_not_expire(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", living(1000))
    client.put("q", *numbers(5))
    taken = [client.take("q") for _ in range(5)]
    stage.pass_ms(5000)
    assert queue.unacked == 5
    for content in taken:
        client.ack(content.method.delivery_tag)
    assert client.count("dead") == 0


@pytest.mark.parametrize("how", ["nack", "close"])
def test_requeued_message_whose_time_is_over_expires(stage: Stage, how: str) -> None:
    client, watcher = stage.connect(), stage.client
    client.queue("dead")
    queue = client.queue("q", living(1000))
    client.put("q", *numbers(5))
    tags = [client.take("q").method.delivery_tag for _ in range(5)]
    stage.pass_ms(1001)
    if how == "nack":
        for tag in tags:
            client.requeue(tag)
    else:
        client.hang_up()
    stage.pass_ms(1)
    assert queue.message_count == 0
    dead = watcher.drain_all("dead")
    assert sorted(content.body for content in dead) == numbers(5)
    assert why(dead[0]) == [("q", "expired", 1)]


def test_requeued_message_expires_at_its_first_time(stage: Stage) -> None:
    client = stage.client
    queue = client.queue("q", {"x-message-ttl": 1000})
    client.put("q", b"m")
    tag = client.take("q").method.delivery_tag
    stage.pass_ms(600)
    client.requeue(tag)
    stage.pass_ms(399)
    assert queue.message_count == 1
    stage.pass_ms(2)
    assert queue.message_count == 0


def test_purge_forgets_the_times(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", living(1000))
    client.put("q", *numbers(9))
    client.purge("q", 9)
    stage.pass_ms(500)
    client.put("q", *numbers(9))
    stage.pass_ms(501)
    assert queue.message_count == 9
    assert client.count("dead") == 0


@pytest.mark.parametrize("by", ["queue", "message"])
def test_time_of_arrival_survives_a_restart(durable: Stage, by: str) -> None:
    client = durable.client
    client.queue("q", {"x-message-ttl": 60_000} if by == "queue" else {})
    client.put("q", *numbers(6), expiration=60_000 if by == "message" else None)
    durable.pass_ms(20_000)
    durable.restart(down_ms=20_000)
    assert durable.queues["q"].message_count == 6
    durable.pass_ms(16_000)
    assert durable.queues["q"].message_count == 6
    durable.pass_ms(4_001)
    assert durable.queues["q"].message_count == 0


def test_what_expired_while_the_broker_was_down_dies_when_it_is_back(durable: Stage) -> None:
    client = durable.client
    client.queue("dead")
    client.queue("q", TO_DEAD)
    for number in numbers(10):
        client.put("q", number, expiration=None if int(number) % 3 else 60_000)
    client = durable.restart(down_ms=60_000)
    durable.pass_ms(1)
    assert durable.queues["q"].message_count == 6
    assert client.drain("dead") == [b"0", b"3", b"6", b"9"]
    assert client.drain("q") == [b"1", b"2", b"4", b"5", b"7", b"8"]


def test_expired_messages_are_gone_after_a_restart_too(durable: Stage) -> None:
    durable.client.queue("q")
    for number in numbers(10):
        durable.client.put("q", number, expiration=None if int(number) % 2 else 1000)
    durable.pass_ms(1001)
    client = durable.restart()
    assert client.drain("q") == [b"1", b"3", b"5", b"7", b"9"]


def test_message_in_two_queues_expires_in_each_for_itself(stage: Stage) -> None:
    client = stage.client
    for name, ms in (("long", 2000), ("short", 1000)):
        client.queue(name, {"x-message-ttl": ms})
        client.bind(name, "amq.fanout")
    client.put("", *numbers(5), exchange="amq.fanout")
    stage.pass_ms(1001)
    assert [stage.queues[name].message_count for name in ("long", "short")] == [5, 0]
    assert client.drain("long") == numbers(5)
