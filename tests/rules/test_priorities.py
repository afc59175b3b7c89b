"""x-max-priority: higher priorities first, and within a priority the older message."""

from __future__ import annotations

import pytest

from tests.rules.stage import TO_DEAD, Client, Stage, why
from warren.amqp.table import Table

FIVE: Table = {"x-max-priority": 5}


def put_levels(client: Client, *priorities: int | None) -> None:
    """Publish a message for each priority. The body has the priority and its place: `3 of 7`."""
    for place, priority in enumerate(priorities):
        body = b"%d of %d" % (priority or 0, place)
        client.put("q", body, priority=priority)


def levels(bodies: list[bytes]) -> list[tuple[int, int]]:
    return [(int(level), int(place)) for level, _, place in (body.partition(b" of ") for body in bodies)]


def in_order(*priorities: int | None) -> list[tuple[int, int]]:
    return sorted(
        ((priority or 0, place) for place, priority in enumerate(priorities)),
        key=lambda each: (-min(each[0], 5), each[1]),
    )


MANY = (0, 3, 5, 1, 0, 5, 3, 0, 2, 4, 1, 5, 0, 0, 3, 3, 2)


@pytest.mark.parametrize(
    "priorities",
    [
        MANY,
        (0, 1, 2, 3, 4, 5),
        (None, 1, None, 0, None),
        (5, 9, 6, 255, 5, 4),
        (2,) * 9,
        (0,) * 7 + (5,) + (0,) * 7,
    ],
    ids=str,
)
@pytest.mark.parametrize("how", ["get", "consume"])
def test_higher_come_first_and_equals_in_order(
    stage: Stage, priorities: tuple[int | None, ...], how: str
) -> None:
    client = stage.client
    queue = client.queue("q", FIVE)
    put_levels(client, *priorities)
    assert queue.message_count == len(priorities)
    assert client.count("q") == len(priorities)
    if how == "get":
        assert levels(client.drain("q")) == in_order(*priorities)
    else:
        client.start("q")
        assert levels(client.delivered()) == in_order(*priorities)
    assert queue.message_count == 0


def test_priority_means_nothing_to_a_queue_without_the_argument(stage: Stage) -> None:
    stage.client.queue("q")
    put_levels(stage.client, 1, 5, 3)
    assert levels(stage.client.drain("q")) == [(1, 0), (5, 1), (3, 2)]


def test_property_arrives_as_it_was_published(stage: Stage) -> None:
    stage.client.queue("q", FIVE)
    put_levels(stage.client, 200, None)
    assert [content.properties.priority for content in stage.client.drain_all("q")] == [200, None]


def test_urgent_message_overtakes_what_waits_but_not_what_is_out(stage: Stage) -> None:
    client, taker = stage.client, stage.connect(prefetch=2)
    client.queue("q", FIVE)
    taker.start("q")
    put_levels(client, 1, 1, 1, 1, 1, 5)
    assert levels(taker.delivered()) == [(1, 0), (1, 1)]
    taker.ack(2, multiple=True)
    assert levels(taker.delivered()) == [(5, 5), (1, 2)]


@pytest.mark.parametrize("how", ["nack", "close"])
def test_returned_messages_go_to_their_own_places(stage: Stage, how: str) -> None:
    client = stage.client
    client.queue("q", FIVE)
    put_levels(client, *MANY)
    tags = [client.take("q").method.delivery_tag for _ in range(9)]
    if how == "nack":
        for tag in tags[::2] + tags[1::2]:
            client.requeue(tag)
    else:
        client.reopen()
    got = client.drain_all("q")
    assert levels([content.body for content in got]) == in_order(*MANY)
    assert [content.method.redelivered for content in got] == [True] * 9 + [False] * (len(MANY) - 9)


def test_order_survives_a_restart(durable: Stage) -> None:
    durable.client.queue("q", FIVE)
    put_levels(durable.client, *MANY)
    for _ in range(3):
        durable.client.get("q")
    client = durable.restart()
    assert client.count("q") == len(MANY) - 3
    assert levels(client.drain("q")) == in_order(*MANY)[3:]


def test_what_comes_after_a_restart_is_younger(durable: Stage) -> None:
    durable.client.queue("q", FIVE)
    put_levels(durable.client, 3, 0, 3, 0)
    client = durable.restart()
    for place, priority in enumerate((0, 3, 5), 4):
        client.put("q", b"%d of %d" % (priority, place), priority=priority)
    assert levels(client.drain("q")) == in_order(3, 0, 3, 0, 0, 3, 5)


def test_nothing_acked_comes_back_after_a_restart(durable: Stage) -> None:
    client = durable.client
    client.queue("q", FIVE)
    put_levels(client, *MANY)
    taken = [client.take("q") for _ in range(len(MANY))]
    for content in taken[::2]:
        client.ack(content.method.delivery_tag)
    got = durable.restart().drain_all("q")
    assert levels([content.body for content in got]) == in_order(*MANY)[1::2]
    assert all(content.method.redelivered for content in got)


def test_drop_head_drops_the_most_urgent(stage: Stage) -> None:
    """As RabbitMQ documents it: the messages of the highest priority are the head."""
    client = stage.client
    client.queue("dead")
    client.queue("q", {**FIVE, **TO_DEAD, "x-max-length": 4})
    put_levels(client, 0, 5, 0, 5, 0)
    assert levels(client.drain("dead")) == [(5, 1)]
    client.put("q", b"4 of 5", priority=4)
    assert levels(client.drain("dead")) == [(5, 3)]
    client.put("q", b"5 of 6", priority=5)
    assert levels(client.drain("dead")) == [(5, 6)]
    assert levels(client.drain("q")) == [(4, 5), (0, 0), (0, 2), (0, 4)]


def test_refusal_counts_all_levels(stage: Stage) -> None:
    client = stage.connect(confirming=True)
    client.queue("q", {**FIVE, "x-max-length": 4, "x-overflow": "reject-publish"})
    put_levels(client, 0, 1, 2, 3, 4, 5)
    assert client.nacked() == [5, 6]


def test_dead_letters_of_all_levels_say_why(stage: Stage) -> None:
    client = stage.client
    client.queue("dead")
    client.queue("q", {**FIVE, **TO_DEAD})
    put_levels(client, 0, 5, 3)
    for _ in range(3):
        client.reject(client.take("q").method.delivery_tag)
    dead = client.drain_all("dead")
    assert levels([content.body for content in dead]) == [(5, 1), (3, 2), (0, 0)]
    assert [why(content) for content in dead] == [[("q", "rejected", 1)]] * 3
    assert [content.properties.priority for content in dead] == [5, 3, 0]


def test_purge_and_delete_count_all_levels(stage: Stage) -> None:
    client = stage.client
    queue = client.queue("q", FIVE)
    put_levels(client, *MANY)
    client.purge("q", len(MANY))
    assert (queue.message_count, queue.message_bytes) == (0, 0)
    put_levels(client, *MANY)
    assert levels(client.drain("q")) == in_order(*MANY)


def test_bytes_are_those_of_all_levels(stage: Stage) -> None:
    queue = stage.client.queue("q", FIVE)
    for priority in MANY:
        stage.client.put("q", b"x" * 10, priority=priority)
    assert queue.message_bytes == 10 * len(MANY)


def test_deleted_queue_leaves_nothing_to_one_of_the_same_name(durable: Stage) -> None:
    durable.client.queue("q", FIVE)
    put_levels(durable.client, *MANY)
    durable.client.delete("q")
    durable.client.queue("q", FIVE)
    put_levels(durable.client, 1, 2)
    assert levels(durable.restart().drain("q")) == [(2, 1), (1, 0)]


@pytest.mark.parametrize("most", [1, 10, 255])
def test_above_the_highest_level_counts_as_that(stage: Stage, most: int) -> None:
    client = stage.client
    client.queue("q", {"x-max-priority": most})
    for priority in (0, most, 255, most - 1, most):
        client.put("q", b"%d" % priority, priority=priority)
    high = [b"%d" % priority for priority in (most, 255, most)]
    assert client.drain("q")[:3] == high
