"""QueueFlow with a clock that moves when told, and queues that are only their numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from tests.support.frames import published
from warren.amqp import methods as m
from warren.broker.flow import (
    FREE_SECONDS_MAX,
    FREE_SECONDS_MIN,
    HIGH_BYTES,
    HIGH_MESSAGES,
    LOOK_SECONDS,
    LOW_BYTES,
    LOW_MESSAGES,
    MUCH_BYTES,
    MUCH_MESSAGES,
    QueueFlow,
)
from warren.broker.queue import Queue


@dataclass(eq=False)
class FakePublisher:
    name: str
    gone: list[str]

    def let_go(self) -> None:
        self.gone.append(self.name)


@dataclass
class Scene:
    """A flow, its queue, and publishers that it holds."""

    world: FakeWorld = field(default_factory=FakeWorld)
    gone: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.flow = QueueFlow(self.world)
        self.numbers = SimpleNamespace(
            message_count=HIGH_MESSAGES + 1,
            message_bytes=0,
            is_worked_off=True,
            holding=False,
            delivered=0,
            delivered_bytes=0,
        )
        self.queue = cast("Queue", self.numbers)

    def hold(self, *names: str) -> list[FakePublisher]:
        publishers = [FakePublisher(name, self.gone) for name in names]
        for publisher in publishers:
            self.flow.hold_back(publisher, self.queue)
        return publishers


@pytest.mark.parametrize(
    ("count", "octets", "pushes"),
    [
        (0, 0, False),
        (HIGH_MESSAGES, HIGH_BYTES, False),
        (HIGH_MESSAGES + 1, 0, True),
        (1, HIGH_BYTES + 1, True),
    ],
)
def test_queue_pushes_back_above_the_high_mark(count: int, octets: int, pushes: bool) -> None:
    scene = Scene()
    scene.numbers.message_count, scene.numbers.message_bytes = count, octets
    assert scene.flow.pushes_back(scene.queue) is pushes


def test_queue_that_nobody_consumes_never_pushes_back() -> None:
    scene = Scene()
    scene.numbers.is_worked_off = False
    assert not scene.flow.pushes_back(scene.queue)


def test_held_publishers_stay_held_above_the_low_mark() -> None:
    scene = Scene()
    scene.hold("a")
    for count, octets in ((LOW_MESSAGES + 1, 0), (0, LOW_BYTES + 1)):
        scene.numbers.message_count, scene.numbers.message_bytes = count, octets
        scene.flow.relieve(scene.queue)
    assert scene.gone == []
    assert scene.numbers.holding


def test_publishers_go_one_by_one_each_turn_at_the_low_mark() -> None:
    scene = Scene()
    scene.hold("a", "b", "c")
    scene.numbers.message_count = LOW_MESSAGES
    scene.flow.relieve(scene.queue)
    assert scene.gone == ["a"]
    scene.world.turn()
    assert scene.gone == ["a", "b"]
    scene.world.turn()
    assert scene.gone == ["a", "b", "c"]
    assert not scene.numbers.holding
    assert not scene.world.soon


def test_release_stops_when_the_backlog_is_up_again() -> None:
    scene = Scene()
    scene.hold("a", "b")
    scene.numbers.message_count = LOW_MESSAGES
    scene.flow.relieve(scene.queue)
    scene.numbers.message_count = LOW_MESSAGES + 1
    scene.world.turn()
    assert scene.gone == ["a"]
    assert scene.numbers.holding


def test_publishers_go_when_the_last_consumer_is_gone() -> None:
    scene = Scene()
    scene.hold("a", "b")
    scene.numbers.is_worked_off = False
    scene.flow.relieve(scene.queue)
    scene.world.turn()
    assert scene.gone == ["a", "b"]


def test_slow_consumers_set_all_publishers_free_for_a_while() -> None:
    scene = Scene()
    scene.hold("a", "b")
    scene.numbers.delivered, scene.numbers.delivered_bytes = MUCH_MESSAGES, MUCH_BYTES
    scene.world.advance(LOOK_SECONDS)
    assert scene.gone == ["a", "b"]
    assert not scene.numbers.holding
    assert not scene.flow.pushes_back(scene.queue)
    scene.world.advance(FREE_SECONDS_MIN)
    assert scene.flow.pushes_back(scene.queue)


def free_seconds(scene: Scene) -> float:
    """For how long publishers go free after a look at slow consumers."""
    scene.hold("a")
    scene.world.advance(LOOK_SECONDS)
    assert not scene.flow.held
    free = scene.flow.free_until - scene.world.now()
    scene.world.advance(free)
    return round(free, 3)


def test_publishers_of_consumers_that_stay_slow_go_free_for_longer_each_time_up_to_a_limit() -> None:
    scene = Scene()
    times = [free_seconds(scene) for _ in range(7)]
    doubled = [FREE_SECONDS_MIN * 2**number for number in range(7)]
    assert times == [min(seconds, FREE_SECONDS_MAX) for seconds in doubled]
    assert FREE_SECONDS_MAX in times


def test_consumers_that_keep_up_again_are_trusted_as_before() -> None:
    scene = Scene()
    assert [free_seconds(scene), free_seconds(scene)] == [FREE_SECONDS_MIN, 2 * FREE_SECONDS_MIN]
    scene.hold("b")
    scene.numbers.message_count = LOW_MESSAGES
    scene.flow.relieve(scene.queue)
    scene.numbers.message_count = HIGH_MESSAGES + 1
    assert free_seconds(scene) == FREE_SECONDS_MIN


@pytest.mark.parametrize(("messages", "octets"), [(MUCH_MESSAGES + 1, 0), (0, MUCH_BYTES + 1)])
def test_fast_consumers_with_a_large_backlog_let_one_publisher_go_each_look(
    messages: int, octets: int
) -> None:
    scene = Scene()
    scene.hold("a", "b", "c")
    for gone in (["a"], ["a", "b"], ["a", "b", "c"]):
        scene.numbers.delivered += messages
        scene.numbers.delivered_bytes += octets
        scene.world.advance(LOOK_SECONDS)
        assert scene.gone == gone
    assert not scene.numbers.holding


def test_consumers_that_were_fast_once_are_measured_again_at_each_look() -> None:
    scene = Scene()
    scene.hold("a", "b", "c")
    scene.numbers.delivered = MUCH_MESSAGES + 1
    scene.world.advance(LOOK_SECONDS)
    scene.world.advance(LOOK_SECONDS)
    assert scene.gone == ["a", "b", "c"]
    assert not scene.flow.pushes_back(scene.queue)


def test_queue_relieved_meanwhile_is_not_taken_for_slow() -> None:
    scene = Scene()
    scene.hold("a", "b", "c")
    scene.world.advance(LOOK_SECONDS / 2)
    scene.numbers.message_count = LOW_MESSAGES
    scene.flow.relieve(scene.queue)
    scene.world.advance(LOOK_SECONDS / 2)
    assert scene.gone == ["a"]


def test_publisher_that_is_gone_is_forgotten() -> None:
    scene = Scene()
    first, _ = scene.hold("a", "b")
    scene.flow.forget(first)
    scene.flow.forget(first)
    scene.numbers.message_count = 0
    scene.flow.relieve(scene.queue)
    assert scene.gone == ["b"]


def test_timer_runs_only_while_somebody_is_held() -> None:
    scene = Scene()
    scene.hold("a")
    assert len(scene.world.later) == 1
    scene.world.advance(LOOK_SECONDS)
    assert not scene.world.later


# --- with connections ---


def backlog(publisher: FakeClient, queue: str, count: int) -> None:
    publisher.connection.feed(published("", queue, b"x") * count)


@pytest.fixture
def clients() -> tuple[FakeWorld, FakeClient, FakeClient]:
    """A publisher, and a consumer of the queue q that takes one message at a time."""
    world = FakeWorld()
    node = make_node(world)
    publisher, consumer = FakeClient(node, name="publisher").open(), FakeClient(node, name="consumer").open()
    publisher.declare("q")
    consumer.call(m.BasicQos(prefetch_count=1), m.BasicQosOk)
    consumer.consume("q")
    return world, publisher, consumer


def test_connection_is_not_read_while_its_queue_has_a_backlog(
    clients: tuple[FakeWorld, FakeClient, FakeClient],
) -> None:
    _, publisher, consumer = clients
    backlog(publisher, "q", HIGH_MESSAGES + 1)
    assert publisher.link.is_reading
    backlog(publisher, "q", 1)
    assert not publisher.link.is_reading
    assert consumer.link.is_reading


def test_connection_is_read_again_when_the_backlog_is_worked_off(
    clients: tuple[FakeWorld, FakeClient, FakeClient],
) -> None:
    _, publisher, consumer = clients
    backlog(publisher, "q", HIGH_MESSAGES + 2)
    for tag in range(1, HIGH_MESSAGES - LOW_MESSAGES + 1):
        consumer.send(m.BasicAck(delivery_tag=tag))
    assert not publisher.link.is_reading
    consumer.send(m.BasicAck(delivery_tag=HIGH_MESSAGES - LOW_MESSAGES + 1))
    assert publisher.link.is_reading


def test_connection_is_read_again_when_its_consumers_are_slow(
    clients: tuple[FakeWorld, FakeClient, FakeClient],
) -> None:
    world, publisher, _ = clients
    backlog(publisher, "q", HIGH_MESSAGES + 2)
    world.advance(LOOK_SECONDS)
    assert publisher.link.is_reading


def test_connection_that_ends_is_held_no_longer(clients: tuple[FakeWorld, FakeClient, FakeClient]) -> None:
    _, publisher, _ = clients
    backlog(publisher, "q", HIGH_MESSAGES + 2)
    queue = publisher.vhost.queues["q"]
    assert list(queue.flow.held) == [publisher.connection]
    publisher.connection.lost()
    assert not queue.flow.held


def test_connection_is_held_for_messages_routed_by_their_headers(
    clients: tuple[FakeWorld, FakeClient, FakeClient],
) -> None:
    _, publisher, _ = clients
    publisher.bind("q", "amq.headers")
    publisher.connection.feed(published("amq.headers", "", b"x") * (HIGH_MESSAGES + 2))
    assert not publisher.link.is_reading


def test_connection_is_held_for_a_queue_that_another_of_its_channels_publishes_to(
    clients: tuple[FakeWorld, FakeClient, FakeClient],
) -> None:
    _, publisher, _ = clients
    publisher.declare("other")
    publisher.call(m.ChannelOpen(), m.ChannelOpenOk, channel=2)
    backlog(publisher, "q", 1)
    publisher.publish("", "other", b"x", channel=2)
    backlog(publisher, "q", HIGH_MESSAGES + 2)
    assert not publisher.link.is_reading


def test_held_connection_that_is_closed_by_the_broker_is_read_for_its_close_ok(
    clients: tuple[FakeWorld, FakeClient, FakeClient],
) -> None:
    _, publisher, _ = clients
    backlog(publisher, "q", HIGH_MESSAGES + 2)
    publisher.connection.force_close("test")
    assert publisher.link.is_reading
    publisher.send(m.ConnectionCloseOk(), 0)
    assert publisher.link.is_closed
