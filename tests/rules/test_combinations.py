"""Rules that meet on one queue."""

from __future__ import annotations

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, header, numbers, why
from warren.amqp.table import Table


def reject_next(client: Client, queue: str = "q") -> None:
    client.reject(client.take(queue).method.delivery_tag)


# --- priorities with the rest ---


def test_messages_of_all_priorities_expire_on_time(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", {**TO_DEAD, "x-max-priority": 3})
    for number in range(12):
        client.put("q", b"%d" % number, priority=number % 4, expiration=1000 if number % 3 else 2000)
    stage.pass_ms(1001)
    assert queue.message_count == 4
    assert sorted(map(int, client.drain("dead"))) == [1, 2, 4, 5, 7, 8, 10, 11]
    assert client.drain("q") == [b"3", b"6", b"9", b"0"]


def test_priorities_and_times_survive_a_restart_together(durable: Stage) -> None:
    client = durable.client
    client.queue("q", {"x-max-priority": 3})
    for number in range(12):
        client.put("q", b"%d" % number, priority=number % 4, expiration=60_000 if number % 3 else 120_000)
    client = durable.restart(down_ms=30_000)
    assert client.count("q") == 12
    durable.pass_ms(30_000)
    assert client.drain("q") == [b"3", b"6", b"9", b"0"]


def test_length_limit_of_a_priority_queue_dead_letters_from_its_head(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-max-priority": 2, "x-max-length": 5})
    for number in range(12):
        client.put("q", b"%d" % number, priority=number % 3)
    dead = client.drain_all("dead")
    assert [content.body for content in dead] == [b"2", b"5", b"1", b"8", b"4", b"7", b"11"]
    assert {reason for content in dead for _, reason, _ in why(content)} == {"maxlen"}
    assert client.drain("q") == [b"10", b"0", b"3", b"6", b"9"]


def test_length_limit_of_a_priority_queue_holds_after_a_restart(durable: Stage) -> None:
    client = durable.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-max-priority": 2, "x-max-length": 5})
    for number in range(5):
        client.put("q", b"%d" % number, priority=number % 3)
    client = durable.restart()
    client.put("q", b"5", priority=0)
    assert client.drain("dead") == [b"2"]
    assert client.drain("q") == [b"1", b"4", b"0", b"3", b"5"]


def test_returned_urgent_message_waits_for_its_delay_and_then_overtakes(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {"x-max-priority": 2, "x-retry-delay-min": 1000})
    for number, priority in enumerate((0, 2, 0, 1)):
        client.put("q", b"%d" % number, priority=priority)
    client.requeue(client.take("q").method.delivery_tag)
    assert client.take("q").body == b"3"
    stage.pass_ms(1001)
    assert client.drain("q") == [b"1", b"0", b"2"]


# --- retries through dead letters ---


class TestRetryTopology:
    """A rejected message goes from `work` to `retry` to `wait`, expires there, and returns to `work`."""

    def declare(self, client: Client) -> None:
        durable = client.stage.keeping.durable
        for name in ("retry", "back"):
            client.declare_exchange(name, "fanout", durable=durable)
        client.queue("work", {"x-dead-letter-exchange": "retry"})
        client.queue("wait", {"x-dead-letter-exchange": "back", "x-message-ttl": 10_000})
        client.bind("wait", "retry")
        client.bind("work", "back")

    def test_count_rises_with_each_round(self, stage: Stage) -> None:
        client = stage.client
        self.declare(client)
        client.put("work", *numbers(5))
        for count in range(1, 5):
            for _ in range(5):
                reject_next(client, "work")
            assert client.get("work") is None
            stage.pass_ms(10_001)
            got = [client.take("work") for _ in range(5)]
            assert [content.body for content in got] == numbers(5)
            for content in got:
                assert why(content) == [("wait", "expired", count), ("work", "rejected", count)]
            client.reopen()

    @pytest.mark.parametrize("where", ["work", "wait"])
    def test_round_goes_on_after_a_restart(self, durable: Stage, where: str) -> None:
        client = durable.client
        self.declare(client)
        client.put("work", *numbers(5))
        for _ in range(5):
            reject_next(client, "work")
        if where == "work":
            durable.pass_ms(10_001)
        client = durable.restart()
        durable.pass_ms(10_001)
        for _ in range(5):
            reject_next(client, "work")
        durable.pass_ms(10_001)
        got = client.drain_all("work")
        assert [content.body for content in got] == numbers(5)
        assert why(got[0]) == [("wait", "expired", 2), ("work", "rejected", 2)]

    def test_expiration_of_the_message_holds_for_its_first_wait_only(self, stage: Stage) -> None:
        client = stage.client
        client.queue("wait", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
        client.queue("work")
        client.put("wait", b"m", expiration=500)
        stage.pass_ms(501)
        stage.pass_ms(10**9)
        assert client.drain("work") == [b"m"]


# --- groups with the rest ---


def test_group_waits_while_one_of_its_messages_waits(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q", {"x-group-header": "group", "x-retry-delay-min": 1000})
    taker.start("q", prefetch=1)
    for letter in "aabab":
        client.put("q", letter.encode(), headers={"group": letter})
    assert taker.delivered() == [b"a"]
    taker.requeue(1)
    for tag in (2, 3):
        assert taker.delivered() == [b"b"]
        taker.ack(tag)
    assert taker.delivered() == []
    stage.pass_ms(1001)
    (again,) = taker.deliveries()
    assert (again.body, header(again, "x-delivery-count")) == (b"a", 1)
    taker.ack(4)
    taker.ack(5)
    assert [header(content, "x-delivery-count") for content in taker.deliveries()] == [None, None]


def test_group_waits_after_a_restart_too(durable: Stage) -> None:
    client = durable.client
    client.queue("q", {"x-group-header": "group", "x-retry-delay-min": 60_000})
    for number, letter in enumerate("aabab"):
        client.put("q", b"%d" % number, headers={"group": letter})
    client.requeue(client.take("q").method.delivery_tag)
    client = durable.restart()
    assert client.drain("q") == [b"2", b"4"]
    durable.pass_ms(60_001)
    assert client.drain("q") == [b"0", b"1", b"3"]


def test_group_goes_on_when_its_first_dies(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue(
        "q", {**TO_DEAD, "x-group-header": "group", "x-retry-delay-min": 1000, "x-delivery-limit": 1}
    )
    client.put("q", *numbers(3), headers={"group": "a"})
    client.requeue(client.take("q").method.delivery_tag)
    assert client.get("q") is None
    stage.pass_ms(1001)
    client.requeue(client.take("q").method.delivery_tag)
    assert client.drain("dead") == [b"0"]
    assert client.drain("q") == [b"1", b"2"]


def test_group_is_free_when_its_message_expires_while_it_waits(stage: Stage) -> None:
    client = stage.client
    client.queue("q", {"x-group-header": "group", "x-retry-delay-min": 60_000})
    client.put("q", b"0", headers={"group": "a"}, expiration=1000)
    client.put("q", b"1", headers={"group": "a"})
    client.requeue(client.take("q").method.delivery_tag)
    assert client.get("q") is None
    stage.pass_ms(60_001)
    assert client.drain("q") == [b"1"]


def test_messages_of_a_group_come_by_priority_to_one_consumer(stage: Stage) -> None:
    client, first, second = stage.client, stage.connect(), stage.connect()
    client.queue("q", {"x-group-header": "group", "x-max-priority": 2})
    for number in range(6):
        client.put("q", b"%d" % number, headers={"group": "a"}, priority=number % 3)
    first.start("q", prefetch=2)
    second.start("q", prefetch=2)
    assert (first.delivered(), second.delivered()) == ([b"2", b"5"], [])


# --- a single active consumer with the rest ---


def test_single_active_consumer_gets_the_urgent_first(stage: Stage) -> None:
    client, first, second = stage.client, stage.connect(prefetch=1), stage.connect()
    client.queue("q", {"x-single-active-consumer": True, "x-max-priority": 3})
    first.start("q")
    second.start("q")
    for number in range(8):
        client.put("q", b"%d" % number, priority=number % 4)
    assert first.delivered() == [b"0"]
    first.ack(1)
    assert first.delivered() == [b"3"]
    first.hang_up()
    assert second.delivered() == [b"3", b"7", b"2", b"6", b"1", b"5", b"4"]


def test_single_active_consumer_that_dies_too_often_on_a_message_loses_it(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-single-active-consumer": True, "x-delivery-limit": 2})
    client.put("q", b"poison", b"good")
    takers = [stage.connect(prefetch=1) for _ in range(4)]
    for taker in takers:
        taker.start("q")
    for taker in takers[:3]:
        assert taker.delivered() == [b"poison"]
        taker.hang_up()
    assert client.drain("dead") == [b"poison"]
    assert takers[3].delivered() == [b"good"]


# --- selectors with the rest ---


def test_what_matches_nobody_expires_on_time(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("dead")
    queue = client.queue("q", {**TO_DEAD, "x-message-ttl": 1000})
    taker.start("q", arguments={"x-selector": "n >= 8"})
    for number in range(12):
        client.put("q", b"%d" % number, headers={"n": number})
    assert taker.delivered() == numbers(4, 8)
    stage.pass_ms(1001)
    assert queue.message_count == 0
    assert client.drain("dead") == numbers(8)


def test_selector_does_not_find_what_expired(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q")
    for number in range(12):
        client.put("q", b"%d" % number, headers={"n": number}, expiration=1000 if number % 2 else None)
    stage.world.time += 2  # but no timer runs
    taker.start("q", arguments={"x-selector": "n > 3"})
    assert taker.delivered() == [b"4", b"6", b"8", b"10"]


def test_selector_over_priorities_takes_the_urgent_first(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("q", {"x-max-priority": 2})
    for number in range(12):
        client.put("q", b"%d" % number, headers={"n": number}, priority=number % 3)
    taker.start("q", arguments={"x-selector": "n > 3 AND n < 10"})
    assert taker.delivered() == [b"5", b"8", b"4", b"7", b"6", b"9"]
    assert client.drain("q") == [b"2", b"11", b"1", b"10", b"0", b"3"]


def test_selector_and_times_hold_after_a_restart(durable: Stage) -> None:
    durable.client.queue("q", {"x-message-ttl": 60_000})
    for number in range(12):
        durable.client.put("q", b"%d" % number, headers={"n": number})
    durable.restart()
    taker = durable.connect()
    taker.start("q", arguments={"x-selector": "n = 10"})
    assert taker.delivered() == [b"10"]
    durable.pass_ms(60_000)
    assert durable.queues["q"].message_count == 0


# --- the rest ---


def test_message_over_the_length_that_was_returned_keeps_its_reason(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-max-length": 1, "x-delivery-limit": 5, "x-message-ttl": 60_000})
    client.put("q", b"m")
    client.requeue(client.take("q").method.delivery_tag)
    client.put("q", b"n")
    (dead,) = client.drain_all("dead")
    assert why(dead) == [("q", "maxlen", 1)]


@pytest.mark.parametrize("first", ["q", "r"])
def test_message_that_dies_in_two_queues_dies_once_in_each(stage: Stage, first: str) -> None:
    client = stage.client
    client.queue("dead")
    for name in ("q", "r"):
        arguments: Table = {**TO_DEAD, "x-message-ttl": 1000 if name == first else 2000}
        client.queue(name, arguments)
        client.bind(name, "amq.fanout")
    client.put("", b"m", exchange="amq.fanout")
    second = "r" if first == "q" else "q"
    stage.pass_ms(2001)
    dead = client.drain_all("dead")
    assert [why(content) for content in dead] == [[(first, "expired", 1)], [(second, "expired", 1)]]


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("taken", [(8,), (8, 10), (4, 8, 10), (5, 6, 8)], ids=str)
def test_what_is_taken_from_the_middle_again_and_again_does_not_expire_while_it_is_out(
    stage: Stage, times: int, taken: tuple[int, ...]
) -> None:
    """Nor does another message expire in the place of one that is out."""
    client = stage.client
    client.queue("dead")
    queue = client.queue("q", TO_DEAD)
    for number in range(16):
        client.put("q", b"%d" % number, headers={"n": number}, expiration=2500 if number in taken else None)
    for time in range(times):
        taker = stage.connect()
        taker.start("q", arguments={"x-selector": f"n IN ({', '.join(map(str, taken))})"})
        assert taker.delivered() == [b"%d" % number for number in taken]
        if time < times - 1:
            taker.hang_up()
    stage.pass_ms(2501)
    assert client.count("dead") == 0
    assert queue.message_count == 16 - len(taken)
    assert client.drain("q") == [b"%d" % number for number in range(16) if number not in taken]


@pytest.mark.parametrize("again", ["get", "nobody"])
def test_message_returned_to_the_middle_expires_there_once(stage: Stage, again: str) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("dead")
    client.queue("q", TO_DEAD)
    for number in range(12):
        client.put("q", b"%d" % number, headers={"n": number}, expiration=2500)
    taker.start("q", arguments={"x-selector": "n = 8"})
    taker.hang_up()
    if again == "get":
        assert [client.take("q").body for _ in range(9)] == numbers(9)
        stage.pass_ms(2501)
        assert client.drain("dead") == numbers(3, 9)
        client.reopen()
    stage.pass_ms(2501)
    assert sorted(map(int, client.drain("dead"))) == (list(range(9)) if again == "get" else list(range(12)))
