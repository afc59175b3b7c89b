"""Dead letters: which messages become one, and the headers they get."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, deaths, header, numbers, why
from tests.support.frames import Content
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Int64, Table, Timestamp, Value


def death_of(stage: Stage, **expected: Value) -> Table:
    return {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "time": stage.world.time_ms() // 1000,
        "exchange": "",
        "routing-keys": ["q"],
        **expected,
    }


def the_dead_letter(client: Client) -> Content[m.BasicGetOk]:
    (content,) = client.drain_all("dead")
    return content


def reject_next(client: Client, queue: str = "q") -> None:
    client.reject(client.take(queue).method.delivery_tag)


def be_rejected(stage: Stage) -> None:
    stage.client.put("q", b"m")
    reject_next(stage.client)


def be_nacked(stage: Stage) -> None:
    stage.client.put("q", b"m")
    tag = stage.client.take("q").method.delivery_tag
    stage.client.send(m.BasicNack(delivery_tag=tag, requeue=False))


def be_too_many(stage: Stage) -> None:
    stage.client.put("q", b"m", b"1", b"2", b"3", b"4", b"5")


def expire(stage: Stage) -> None:
    stage.client.put("q", b"m")
    stage.pass_ms(60_001)


def be_returned_too_often(stage: Stage) -> None:
    stage.client.put("q", b"m")
    for _ in range(3):
        stage.client.requeue(stage.client.take("q").method.delivery_tag)


@pytest.mark.parametrize(
    ("die", "reason"),
    [
        (be_rejected, "rejected"),
        (be_nacked, "rejected"),
        (be_too_many, "maxlen"),
        (expire, "expired"),
        (be_returned_too_often, "delivery_limit"),
    ],
)
def test_death_says_when_where_and_why(stage: Stage, die: Callable[[Stage], None], reason: str) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-max-length": 5, "x-message-ttl": 60_000, "x-delivery-limit": 2})
    die(stage)
    dead = the_dead_letter(client)
    assert dead.body == b"m"
    assert deaths(dead) == [death_of(stage, reason=reason)]
    assert dead.properties.headers == {
        "x-death": deaths(dead),
        "x-first-death-reason": reason,
        "x-first-death-queue": "q",
        "x-first-death-exchange": "",
        "x-last-death-reason": reason,
        "x-last-death-queue": "q",
        "x-last-death-exchange": "",
    }


def test_count_is_a_long_and_time_a_timestamp(plain: Stage) -> None:
    plain.client.queue("dead")
    plain.client.queue("q", TO_DEAD)
    be_rejected(plain)
    (death,) = deaths(the_dead_letter(plain.client))
    assert type(death["count"]) is Int64
    assert type(death["time"]) is Timestamp


@pytest.mark.parametrize("multiple", [True, False])
def test_rejected_messages_die_in_order(stage: Stage, multiple: bool) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", TO_DEAD)
    client.put("q", *numbers(6))
    tags = [client.take("q").method.delivery_tag for _ in range(6)]
    if multiple:
        client.send(m.BasicNack(delivery_tag=tags[-1], multiple=True, requeue=False))
    else:
        for tag in tags:
            client.reject(tag)
    assert stage.queues["q"].unacked == 0
    assert client.drain("dead") == numbers(6)


def test_dead_letter_is_otherwise_as_it_was(stage: Stage) -> None:
    client = stage.client
    properties = BasicProperties(
        content_type="text/plain",
        headers={"mine": [1, {"two": Int64(3)}]},
        delivery_mode=stage.next_mode(),
        priority=4,
        correlation_id="c",
        message_id="id",
        timestamp=17,
    )
    client.queue("dead")
    client.queue("q", TO_DEAD)
    client.publish("", "q", b"body", properties)
    stage.settle()
    reject_next(client)
    dead = the_dead_letter(client)
    ours = {"x-death"} | {
        f"x-{w}-death-{k}" for w in ("first", "last") for k in ("queue", "reason", "exchange")
    }
    headers = dead.properties.headers or {}
    assert set(headers) == {"mine"} | ours
    dead.properties.headers = {"mine": headers["mine"]}
    assert dead.properties == properties
    assert dead.body == b"body"


def test_dead_letter_comes_as_a_new_message_of_its_exchange_and_key(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.bind("dead", "amq.direct", "gone")
    client.queue("q", {"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "gone"})
    client.put("q", b"m")
    for _ in range(2):
        client.requeue(client.take("q").method.delivery_tag)
    reject_next(client)
    dead = client.take("dead")
    assert (dead.method.exchange, dead.method.routing_key) == ("amq.direct", "gone")
    assert not dead.method.redelivered
    assert header(dead, "x-delivery-count") is None


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen"])
def test_expiration_is_removed_and_written_down(stage: Stage, reason: str) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-max-length": 1})
    client.put("q", b"m", expiration=1000)
    if reason == "rejected":
        reject_next(client)
    elif reason == "maxlen":
        client.put("q", b"another")
    else:
        stage.pass_ms(1001)
    stage.pass_ms(5000)
    dead = the_dead_letter(client)
    assert deaths(dead)[0]["reason"] == reason
    assert deaths(dead)[0]["original-expiration"] == "1000"
    assert dead.properties.expiration is None


def test_ttl_of_the_queue_is_no_original_expiration(stage: Stage) -> None:
    stage.client.queue("dead")
    stage.client.queue("q", {**TO_DEAD, "x-message-ttl": 100})
    stage.client.put("q", b"m")
    stage.pass_ms(101)
    assert "original-expiration" not in deaths(the_dead_letter(stage.client))[0]


class TestDeathsThatRepeat:
    """Messages are rejected in `work`, wait in `wait` for a second, and come back."""

    @pytest.fixture
    def loop(self, stage: Stage) -> Stage:
        self.declare(stage)
        return stage

    def declare(self, stage: Stage) -> None:
        client = stage.client
        client.queue("work", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
        client.queue(
            "wait",
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work", "x-message-ttl": 1000},
        )
        client.put("work", b"m")

    def go_round(self, stage: Stage) -> Content[m.BasicGetOk]:
        reject_next(stage.client, "work")
        stage.pass_ms(1001)
        content = stage.client.take("work")
        stage.client.requeue(content.method.delivery_tag)
        return content

    def test_newest_comes_first(self, loop: Stage) -> None:
        assert why(self.go_round(loop)) == [("wait", "expired", 1), ("work", "rejected", 1)]

    def test_same_queue_and_reason_are_counted_and_move_to_the_front(self, loop: Stage) -> None:
        client = loop.client
        self.go_round(loop)
        reject_next(client, "work")
        waiting = client.take("wait")
        assert why(waiting) == [("work", "rejected", 2), ("wait", "expired", 1)]
        client.requeue(waiting.method.delivery_tag)
        loop.pass_ms(1001)
        content = client.take("work")
        assert why(content) == [("wait", "expired", 2), ("work", "rejected", 2)]
        assert all(type(death["count"]) is Int64 for death in deaths(content))

    def test_count_rises_each_time(self, loop: Stage) -> None:
        for count in range(1, 6):
            assert why(self.go_round(loop)) == [("wait", "expired", count), ("work", "rejected", count)]

    def test_first_death_is_set_once_and_last_death_each_time(self, loop: Stage) -> None:
        client = loop.client
        content = self.go_round(loop)
        for _ in range(2):
            assert header(content, "x-first-death-queue") == "work"
            assert header(content, "x-first-death-reason") == "rejected"
            assert header(content, "x-last-death-queue") == "wait"
            assert header(content, "x-last-death-reason") == "expired"
            content = self.go_round(loop)
        reject_next(client, "work")
        waiting = client.take("wait")
        assert header(waiting, "x-last-death-queue") == "work"
        assert header(waiting, "x-last-death-reason") == "rejected"

    def test_another_reason_in_the_same_queue_is_another_death(self, loop: Stage) -> None:
        client = loop.client
        self.go_round(loop)
        reject_next(client, "work")
        reject_next(client, "wait")
        assert why(client.take("work")) == [
            ("wait", "rejected", 1),
            ("work", "rejected", 2),
            ("wait", "expired", 1),
        ]

    def test_deaths_are_counted_on_after_a_restart(self, durable: Stage) -> None:
        self.declare(durable)
        self.go_round(durable)
        durable.restart()
        assert why(self.go_round(durable)) == [("wait", "expired", 2), ("work", "rejected", 2)]


FORGED: Table = {"count": Int64(7), "reason": "rejected", "queue": "q", "exchange": "", "routing-keys": ["q"]}


@pytest.mark.parametrize(
    "forged",
    [[FORGED], [], "nonsense", ["nonsense"], [{}], [{"queue": 1, "reason": 2, "count": "x"}], {"a": 1}, None],
    ids=str,
)
def test_deaths_that_a_client_wrote_are_dropped_when_the_message_dies(stage: Stage, forged: Value) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", TO_DEAD)
    client.put("q", b"m", headers={"x-death": forged})
    alive = client.take("q")
    assert header(alive, "x-death") == forged
    client.reject(alive.method.delivery_tag)
    assert why(the_dead_letter(client)) == [("q", "rejected", 1)]


def test_deaths_of_a_dead_letter_that_a_client_publishes_again_are_dropped(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", TO_DEAD)
    be_rejected(stage)
    client.put("q", b"again", headers=the_dead_letter(client).properties.headers)
    reject_next(client)
    assert why(the_dead_letter(client)) == [("q", "rejected", 1)]


def test_forged_deaths_do_not_make_a_cycle(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-message-ttl": 100})
    forged: Table = {**FORGED, "reason": "expired", "queue": "dead"}
    client.put("q", b"m", headers={"x-death": [forged]})
    stage.pass_ms(101)
    assert why(the_dead_letter(client)) == [("q", "expired", 1)]


def test_deletion_does_not_dead_letter(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", TO_DEAD)
    client.put("q", *numbers(6))
    tag = client.take("q").method.delivery_tag
    client.delete("q")
    client.reject(tag)
    assert client.count("dead") == 0


def test_purge_does_not_dead_letter(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", TO_DEAD)
    client.put("q", *numbers(6))
    client.purge("q", 6)
    assert client.count("dead") == 0


def test_acked_message_is_no_dead_letter(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-message-ttl": 1000})
    client.put("q", b"m")
    client.ack(client.take("q").method.delivery_tag)
    stage.pass_ms(5000)
    assert client.count("dead") == 0


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_rejection_in_a_transaction_dead_letters_at_commit(plain: Stage, end: str) -> None:
    client, watcher = plain.client, plain.connect()
    client.queue("dead")
    client.queue("q", TO_DEAD)
    client.put("q", b"m")
    client.call(m.TxSelect(), m.TxSelectOk)
    reject_next(client)
    assert watcher.count("dead") == 0
    if end == "commit":
        client.call(m.TxCommit(), m.TxCommitOk)
    else:
        client.call(m.TxRollback(), m.TxRollbackOk)
    assert watcher.count("dead") == (end == "commit")


def test_dead_letters_reach_a_consumer_that_waits(stage: Stage) -> None:
    client, taker = stage.client, stage.connect()
    client.queue("dead")
    client.queue("q", {**TO_DEAD, "x-message-ttl": 100})
    taker.start("dead")
    client.put("q", *numbers(6))
    stage.pass_ms(101)
    assert taker.delivered() == numbers(6)
