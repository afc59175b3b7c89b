"""The rules of queues as programs with pika use them: retries, limits, timeouts, priorities, delays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError

from tests.clients.conftest import serve_until
from tests.clients.pika_client import Inbox, connect, drain, hold, publish, ready_count
from tests.support.process import Address, BrokerProcess

SOON_MS = 60
"""Long enough to be a wait, short enough for a test."""

HOUR_MS = 3_600_000


@pytest.fixture
def connection(broker: Address) -> Iterator[BlockingConnection]:
    with connect(broker) as connection:
        yield connection


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def other(connection: BlockingConnection) -> BlockingChannel:
    """Another channel of the same connection."""
    return connection.channel()


def declare(channel: BlockingChannel, queue: str, **arguments: Any) -> str:
    """An exclusive queue; `message_ttl` is the argument `x-message-ttl`."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.queue_declare(queue, exclusive=True, arguments=named)
    return queue


def wait_for_count(channel: BlockingChannel, queue: str, count: int) -> None:
    """What goes or comes by itself is not told of: it is asked for."""
    serve_until(
        lambda: channel.connection.process_data_events(time_limit=0.02),
        lambda: ready_count(channel, queue) == count,
    )


def next_delivery(inbox: Inbox) -> tuple[Any, Any, bytes]:
    """The next that it gets; those before are forgotten."""
    inbox.wait_for(1)
    return inbox.deliveries.pop(0)


# --- retries ---


def test_count_of_deaths_rises_each_time_a_message_comes_round(channel: BlockingChannel, name: str) -> None:
    """What is rejected waits in a queue with a time limit, whose dead letters go back."""
    work, wait = f"{name}-work", f"{name}-wait"
    channel.exchange_declare(name, "direct", auto_delete=True)
    declare(channel, work, dead_letter_exchange=name, dead_letter_routing_key="wait")
    declare(channel, wait, message_ttl=SOON_MS, dead_letter_exchange=name, dead_letter_routing_key="work")
    channel.queue_bind(work, name, "work")
    channel.queue_bind(wait, name, "wait")
    channel.basic_publish(name, "work", b"job", BasicProperties(headers={"mine": "kept"}))
    inbox = Inbox(channel, work)
    counts: list[dict[str, int]] = []
    while len(counts) < 4:
        method, properties, _ = next_delivery(inbox)
        assert properties.headers["mine"] == "kept"
        deaths = {death["queue"]: death for death in properties.headers.get("x-death", [])}
        counts.append({queue: deaths[queue]["count"] for queue in deaths})
        if len(counts) < 4:
            channel.basic_reject(method.delivery_tag, requeue=False)
    channel.basic_ack(method.delivery_tag)
    assert counts == [{}, *({work: number, wait: number} for number in (1, 2, 3))]
    assert (deaths[work]["reason"], deaths[wait]["reason"]) == ("rejected", "expired")
    assert properties.headers["x-first-death-queue"] == work
    assert (ready_count(channel, work), ready_count(channel, wait)) == (0, 0)


def test_returned_message_is_retried_with_delays_and_then_dies(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    work = declare(
        channel,
        name,
        retry_delay_min=SOON_MS,
        retry_delay_max=2 * SOON_MS,
        delivery_limit=3,
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
    )
    publish(channel, work, b"job")
    inbox = Inbox(channel, work)
    counts = []
    for _ in range(4):
        method, properties, _ = next_delivery(inbox)
        counts.append((properties.headers or {}).get("x-delivery-count"))
        channel.basic_nack(method.delivery_tag, requeue=True)
    assert counts == [None, 1, 2, 3]
    _, properties, body = next_delivery(Inbox(channel, dead, auto_ack=True))
    assert body == b"job"
    [death] = properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == (work, "delivery_limit", 1)


def test_next_message_overtakes_one_that_waits_for_its_retry(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, retry_delay_min=SOON_MS)
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, name)
    publish(channel, name, b"1", b"2")
    channel.basic_nack(next_delivery(inbox)[0].delivery_tag, requeue=True)
    order = []
    for _ in range(2):
        method, _, body = next_delivery(inbox)
        order.append((body, method.redelivered))
        channel.basic_ack(method.delivery_tag)
    assert order == [(b"2", False), (b"1", True)]


# --- limits ---


def test_exactly_the_refused_messages_are_nacked(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_length=3, overflow="reject-publish")
    channel.confirm_delivery()
    refused = []
    for number in range(6):
        try:
            channel.basic_publish("", name, b"%d" % number)
        except NackError:
            refused.append(number)
    assert refused == [3, 4, 5]
    assert channel.basic_get(name, auto_ack=True)[2] == b"0"
    channel.basic_publish("", name, b"6")
    assert [body for body, _ in drain(channel, name)] == [b"1", b"2", b"6"]


def test_refused_message_may_become_a_dead_letter(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": dead}
    declare(channel, name, max_length_bytes=5, overflow="reject-publish-dlx", **arguments)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"four")
    with pytest.raises(NackError):
        channel.basic_publish("", name, b"more")
    channel.basic_publish("", name, b"x")
    assert [body for body, _ in drain(channel, dead)] == [b"more"]
    assert [body for body, _ in drain(channel, name)] == [b"four", b"x"]


def test_oldest_beyond_the_limit_become_dead_letters(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, max_length=2, dead_letter_exchange="", dead_letter_routing_key=dead)
    channel.confirm_delivery()
    publish(channel, name, *(b"%d" % number for number in range(5)))
    assert [body for body, _ in drain(channel, name)] == [b"3", b"4"]
    _, properties, body = channel.basic_get(dead, auto_ack=True)
    assert (body, properties.headers["x-last-death-reason"]) == (b"0", "maxlen")
    assert [body for body, _ in drain(channel, dead)] == [b"1", b"2"]


# --- time ---


def test_messages_expire_each_at_its_own_time(channel: BlockingChannel, name: str) -> None:
    """Also behind one that stays, and the one with the shorter time first."""
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=dead)
    publish(channel, name, b"stays")
    for body, expiration in ((b"later", 6 * SOON_MS), (b"sooner", SOON_MS), (b"long", HOUR_MS)):
        channel.basic_publish("", name, body, BasicProperties(expiration=str(expiration)))
    inbox = Inbox(channel, dead, auto_ack=True)
    inbox.wait_for(2)
    assert inbox.bodies == [b"sooner", b"later"]
    [properties, _] = [properties for _, properties, _ in inbox.deliveries]
    assert properties.expiration is None
    assert properties.headers["x-death"][0]["original-expiration"] == str(SOON_MS)
    assert [body for body, _ in drain(channel, name)] == [b"stays", b"long"]


def test_unused_queue_goes_with_what_is_in_it(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, expires=SOON_MS, dead_letter_exchange="", dead_letter_routing_key=dead)
    publish(channel, name, b"goes too")
    witness = Inbox(other, declare(other, f"{name}-witness", message_ttl=HOUR_MS))
    waiting = declare(
        channel,
        f"{name}-clock",
        message_ttl=10 * SOON_MS,
        dead_letter_exchange="",
        dead_letter_routing_key=f"{name}-witness",
    )
    publish(channel, waiting, b"much later")
    witness.wait_for(1)
    with pytest.raises(ChannelClosedByBroker) as closed:
        other.queue_declare(name, passive=True)
    assert closed.value.reply_code == 404
    assert ready_count(channel, dead) == 0


def test_queue_with_a_consumer_does_not_expire(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, expires=SOON_MS)
    inbox = Inbox(channel, name, auto_ack=True)
    waiting = declare(
        channel,
        f"{name}-clock",
        message_ttl=4 * SOON_MS,
        dead_letter_exchange="",
        dead_letter_routing_key=name,
    )
    publish(channel, waiting, b"still there")
    inbox.wait_for(1)
    assert inbox.bodies == [b"still there"]


def test_consumer_that_keeps_a_message_too_long_loses_it_to_another(
    broker: Address, channel: BlockingChannel, name: str
) -> None:
    declare_shared = {"x-consumer-timeout": 500}
    channel.queue_declare(name, auto_delete=True, arguments=declare_shared)
    with connect(broker) as slow:
        holder = slow.channel()
        held = Inbox(holder, name)
        publish(channel, name, b"job")
        held.wait_for(1)
        waiting = Inbox(channel, name)
        with pytest.raises(ChannelClosedByBroker) as closed:
            holder.start_consuming()
        assert closed.value.reply_code == 406
        assert "timed out" in closed.value.reply_text
        method, properties, body = next_delivery(waiting)
        assert (body, method.redelivered, properties.headers) == (b"job", True, None)
        channel.basic_ack(method.delivery_tag)
        assert slow.channel().is_open


def test_delayed_messages_come_in_the_order_of_their_times(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(
        name, "x-delayed-message", auto_delete=True, arguments={"x-delayed-type": "topic"}
    )
    declare(channel, name)
    channel.queue_bind(name, name, "jobs.#")
    inbox = Inbox(channel, name, auto_ack=True)
    for delay in (5 * SOON_MS, SOON_MS):
        properties = BasicProperties(headers={"x-delay": delay})
        channel.basic_publish(name, "jobs.x", b"after %d" % delay, properties)
    channel.basic_publish(name, "jobs.x", b"at once")
    channel.basic_publish(name, "other", b"nowhere", BasicProperties(headers={"x-delay": SOON_MS}))
    inbox.wait_for(3)
    assert inbox.bodies == [b"at once", b"after %d" % SOON_MS, b"after %d" % (5 * SOON_MS)]
    assert [method.routing_key for method, _, _ in inbox.deliveries] == ["jobs.x"] * 3
    assert inbox.deliveries[1][1].headers == {"x-delay": -SOON_MS}


# --- who gets what ---


def test_higher_priorities_come_first_and_equal_ones_in_order(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_priority=10)
    priorities = [*range(11), None, *range(20, -1, -1)]
    for number, priority in enumerate(priorities):
        channel.basic_publish("", name, b"%d" % number, BasicProperties(priority=priority))
    order = sorted(range(len(priorities)), key=lambda number: -min(priorities[number] or 0, 10))
    assert [int(body) for body, _ in drain(channel, name)] == order


def test_only_one_of_several_consumers_is_active(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    declare(channel, name, single_active_consumer=True)
    channel.basic_qos(prefetch_count=1)
    first, second = Inbox(channel, name), Inbox(other, name)
    publish(channel, name, *(b"%d" % number for number in range(4)))
    first.wait_for(1)
    assert (ready_count(channel, name), second.bodies) == (3, [])
    channel.close()  # pika cancels the consumer first, so that what it held comes back last
    second.wait_for(4)
    assert [(body, method.redelivered) for method, _, body in second.deliveries] == [
        (b"1", False),
        (b"2", False),
        (b"3", False),
        (b"0", True),
    ]


def test_browser_sees_all_and_takes_nothing(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    publish(channel, name, b"1", b"2")
    browser = Inbox(other, name, auto_ack=True, arguments={"x-browse": True})
    browser.wait_for(2)
    publish(channel, name, b"3")
    browser.wait_for(3)
    assert browser.bodies == [b"1", b"2", b"3"]
    assert drain(channel, name) == [(b"1", False), (b"2", False), (b"3", False)]


def test_selecting_consumers_take_only_what_they_ask_for(
    channel: BlockingChannel, other: BlockingChannel, name: str
) -> None:
    declare(channel, name)
    urgent = Inbox(
        other, name, auto_ack=True, arguments={"x-selector": "level > 5 AND kind IN ('alarm', 'call')"}
    )
    for number, (level, kind) in enumerate(
        [(9, "alarm"), (1, "alarm"), (7, "mail"), (6, "call"), (2, "mail")]
    ):
        properties = BasicProperties(headers={"level": level, "kind": kind})
        channel.basic_publish("", name, b"%d" % number, properties)
    urgent.wait_for(2)
    assert urgent.bodies == [b"0", b"3"]
    mail = Inbox(other, name, auto_ack=True, arguments={"x-selector": "kind = 'mail'"})
    mail.wait_for(2)
    assert mail.bodies == [b"2", b"4"]
    assert [body for body, _ in drain(channel, name)] == [b"1"]


def test_selector_that_is_none_is_refused(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    with pytest.raises(ChannelClosedByBroker) as closed:
        Inbox(channel, name, arguments={"x-selector": "level >"})
    assert closed.value.reply_code == 406


class GroupWorker:
    """A consumer on a channel of its own that checks, with all others, that nobody else holds its groups."""

    def __init__(self, connection: BlockingConnection, queue: str, holders: dict[str, GroupWorker]) -> None:
        self.channel = connection.channel()
        self.holders = holders
        self.held: list[tuple[int, str, int]] = []
        self.seen: list[tuple[str, int]] = []
        self.channel.basic_qos(prefetch_count=4)
        self.tag = self.channel.basic_consume(queue, self.take)

    def take(self, _channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        group = properties.headers["group"]
        assert self.holders.setdefault(group, self) is self, f"{group} has two consumers"
        self.held.append((method.delivery_tag, group, int(body)))
        self.seen.append((group, int(body)))

    def ack_first(self) -> tuple[str, int] | None:
        """The oldest that it holds."""
        if not self.held:
            return None
        tag, group, number = self.held.pop(0)
        if all(other != group for _, other, _ in self.held):
            self.holders.pop(group)
        self.channel.basic_ack(tag)
        return group, number

    def leave(self) -> None:
        """What it holds, others may have from now on."""
        for group in {group for _, group, _ in self.held}:
            self.holders.pop(group)
        self.held.clear()
        self.channel.close()


def test_groups_keep_their_order_while_consumers_come_and_go(
    connection: BlockingConnection, channel: BlockingChannel, name: str
) -> None:
    groups, messages, consumers = 12, 600, 8
    rng = random.Random(1)
    declare(channel, name, group_header="group")
    for number in range(messages):
        properties = BasicProperties(headers={"group": f"g{rng.randrange(groups)}"})
        channel.basic_publish("", name, b"%d" % number, properties)
    holders: dict[str, GroupWorker] = {}
    workers = [GroupWorker(connection, name, holders) for _ in range(consumers)]
    acked: dict[str, list[int]] = {}

    def work() -> None:
        connection.process_data_events(time_limit=0.01)
        for worker in rng.sample(workers, consumers):
            done = worker.ack_first()
            if done is not None:
                acked.setdefault(done[0], []).append(done[1])
        if rng.random() < 0.3:
            workers.pop(rng.randrange(consumers)).leave()
            workers.append(GroupWorker(connection, name, holders))

    serve_until(work, lambda: sum(map(len, acked.values())) == messages)
    assert all(numbers == sorted(numbers) for numbers in acked.values())
    assert sorted(number for numbers in acked.values() for number in numbers) == list(range(messages))


# --- once only ---


def test_queue_drops_what_it_has_seen_and_confirms_it(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, message_deduplication=True, cache_size=100)
    channel.confirm_delivery()
    for number in (1, 2, 1, 3, 2):
        properties = BasicProperties(headers={"x-deduplication-header": f"order-{number}"})
        channel.basic_publish("", name, b"%d" % number, properties)
    assert [body for body, _ in drain(channel, name)] == [b"1", b"2", b"3"]


def test_exchange_drops_what_it_has_seen_until_its_time_is_over(channel: BlockingChannel, name: str) -> None:
    arguments = {"x-message-deduplication": True, "x-cache-size": 100, "x-cache-ttl": HOUR_MS}
    channel.exchange_declare(name, "fanout", auto_delete=True, arguments=arguments)
    declare(channel, name)
    channel.queue_bind(name, name)
    channel.confirm_delivery()
    long = BasicProperties(headers={"x-deduplication-header": "a"})
    short = BasicProperties(headers={"x-deduplication-header": "b", "x-cache-ttl": SOON_MS})

    def publish_again() -> None:
        channel.basic_publish(name, "", b"remembered", long)
        channel.basic_publish(name, "", b"forgotten", short)

    publish_again()
    serve_until(publish_again, lambda: ready_count(channel, name) >= 3)
    assert sorted(body for body, _ in drain(channel, name)) == [b"forgotten", b"forgotten", b"remembered"]


# --- policies ---


def test_policy_of_the_configuration_holds_for_queues_it_matches(tmp_path: Path) -> None:
    config = tmp_path / "warren.toml"
    config.write_text(
        """
        [[policies]]
        name = "short"
        pattern = "^short"
        apply_to = "queues"
        definition = { max-length = 2, overflow = "reject-publish" }

        [[policies]]
        name = "dying"
        pattern = "^dying"
        definition = { message-ttl = 60, dead-letter-exchange = "", dead-letter-routing-key = "plain" }

        [[operator_policies]]
        name = "cap"
        pattern = "^short-capped"
        definition = { max-length = 1 }
        """
    )
    with BrokerProcess(tmp_path / "data", "--config", str(config)) as process:
        with connect(process.address) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for queue in ("short", "short-capped", "dying", "plain"):
                channel.queue_declare(queue, exclusive=True)
            assert accepted(channel, "short", 4) == 2
            assert accepted(channel, "short-capped", 4) == 1
            assert accepted(channel, "plain", 4) == 4
            assert accepted(channel, "dying", 2) == 2
            wait_for_count(channel, "plain", 6)
            assert ready_count(channel, "dying") == 0
        process.check_log()


def accepted(channel: BlockingChannel, queue: str, count: int) -> int:
    """How many of so many were not refused."""
    taken = 0
    for _ in range(count):
        try:
            channel.basic_publish("", queue, b"x")
        except NackError:
            continue
        taken += 1
    return taken


def test_held_messages_do_not_count_for_the_limit(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_length=2)
    publish(channel, name, b"1", b"2")
    tags = hold(channel, name, 2)
    publish(channel, name, b"3", b"4")
    assert ready_count(channel, name) == 2
    channel.basic_nack(tags[0], requeue=True)
    wait_for_count(channel, name, 2)
    assert [body for body, _ in drain(channel, name)] == [b"3", b"4"]
