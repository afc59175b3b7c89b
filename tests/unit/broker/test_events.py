"""Every kind of event comes from something real, and subscribers can do no harm."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from tests.support.queues import classic
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker import commands
from warren.broker import events as e
from warren.broker.events import Event, Events
from warren.broker.message import Message
from warren.broker.node import Node
from warren.broker.vhost_metadata import VhostMetadata


class Scene:
    """A broker with one client, and all that happened since `start`."""

    def __init__(self) -> None:
        self.world = FakeWorld()
        self.node: Node = make_node(self.world)
        self.client = FakeClient(self.node).open()
        self.client.declare("q")
        self.client.publish("", "q", b"1")
        self.seen: list[Event] = []

    def start(self, kind: type[Event]) -> None:
        self.node.events.subscribe(kind, self.seen.append)

    def message(self) -> object:
        entry = classic(self.client.vhost.queues["q"]).lane.ready.head
        assert entry is not None
        return entry.message


def connect(scene: Scene) -> list[Event]:
    FakeClient(scene.node, name="new").open()
    return [e.ConnectionOpened("new", "guest", "/")]


def disconnect(scene: Scene) -> list[Event]:
    scene.client.send(m.ConnectionClose(reply_code=200, reply_text="bye"), 0)
    return [e.ConnectionClosed("client", "client closed: 200 bye")]


def block(scene: Scene) -> list[Event]:
    scene.node.raise_alarm("memory")
    scene.client.publish("amq.fanout", "", b"x")
    return [e.ConnectionBlocked("client", "low on memory")]


def unblock(scene: Scene) -> list[Event]:
    scene.node.raise_alarm("memory")
    scene.client.publish("amq.fanout", "", b"x")
    scene.node.clear_alarm("memory")
    return [e.ConnectionUnblocked("client")]


def wrong_password(scene: Scene) -> list[Event]:
    client = FakeClient(scene.node, name="new")
    client.greet()
    client.authenticate("guest", "wrong")
    scene.world.run_threads()
    return [e.AuthenticationFailed("new", "guest", "wrong password")]


def open_channel(scene: Scene) -> list[Event]:
    scene.client.send(m.ChannelOpen(), 7)
    return [e.ChannelOpened("client", 7)]


def close_channel(scene: Scene) -> list[Event]:
    scene.client.send(m.ChannelClose(reply_code=200, reply_text="bye"))
    return [e.ChannelClosed("client", 1, "200 bye")]


def fail(scene: Scene) -> list[Event]:
    scene.world.broken = error = RuntimeError("a bug")
    scene.client.send(m.QueueDeclare(queue="", arguments={}))
    return [e.Failure("client", error)]


def add_vhost(scene: Scene) -> list[Event]:
    scene.node.execute(commands.AddVhost(name="new"))
    return [e.VhostCreated("new")]


def delete_vhost(scene: Scene) -> list[Event]:
    scene.node.execute(commands.AddVhost(name="new"))
    scene.node.execute(commands.DeleteVhost(name="new"))
    scene.node.execute(commands.DeleteVhost(name="new"))
    return [e.VhostDeleted("new")]


def switch_tracing(scene: Scene) -> list[Event]:
    for on in (False, True, True, False):
        scene.node.execute(commands.SetTracing(vhost="/", on=on))
    return [e.TracingChanged("/", True), e.TracingChanged("/", False)]


def change_user(scene: Scene) -> list[Event]:
    scene.node.execute(commands.PutUser(name="new", password=None))
    scene.node.execute(commands.DeleteUser(name="new"))
    return [e.UserChanged("new")] * 2


def limit_vhost(scene: Scene) -> list[Event]:
    scene.node.execute(commands.SetVhostLimits(vhost="/", max_queues=5))
    scene.node.execute(commands.SetVhostLimits(vhost="/", max_queues=5))
    return [e.VhostLimitsChanged("/")]


def describe_vhost(scene: Scene) -> list[Event]:
    for _ in range(2):
        scene.node.execute(commands.SetVhostMetadata(vhost="/", metadata=VhostMetadata("mine")))
    return [e.VhostMetadataChanged("/")]


def set_parameter(scene: Scene) -> list[Event]:
    for _ in range(2):
        scene.node.execute(commands.SetParameter(vhost="/", component="shovel", name="s", value=1))
    return [e.ParameterSet("/", "shovel", "s")]


def clear_parameter(scene: Scene) -> list[Event]:
    set_parameter(scene)
    for _ in range(2):
        scene.node.execute(commands.ClearParameter(vhost="/", component="shovel", name="s"))
    return [e.ParameterCleared("/", "shovel", "s")]


def set_global_parameter(scene: Scene) -> list[Event]:
    for _ in range(2):
        scene.node.execute(commands.SetGlobalParameter(name="g", value=1))
    return [e.GlobalParameterSet("g")]


def clear_global_parameter(scene: Scene) -> list[Event]:
    set_global_parameter(scene)
    for _ in range(2):
        scene.node.execute(commands.ClearGlobalParameter(name="g"))
    return [e.GlobalParameterCleared("g")]


def limit_user(scene: Scene) -> list[Event]:
    scene.node.execute(commands.SetUserLimits(user="guest", max_channels=5))
    scene.node.execute(commands.SetUserLimits(user="guest", max_channels=5))
    return [e.UserLimitsChanged("guest")]


def put_policy(scene: Scene) -> list[Event]:
    put = commands.PutPolicy(vhost="/", name="p", pattern="", definition={"expires": 5}, operator=True)
    scene.node.execute(put)
    scene.node.execute(put)
    return [e.PolicyChanged("/", "p", operator=True)]


def delete_policy(scene: Scene) -> list[Event]:
    put_policy(scene)
    scene.node.execute(commands.DeletePolicy(vhost="/", name="p"))
    scene.node.execute(commands.DeletePolicy(vhost="/", name="p", operator=True))
    return [e.PolicyDeleted("/", "p", operator=True)]


def declare_exchange(scene: Scene) -> list[Event]:
    scene.client.declare_exchange("new", "topic")
    return [e.ExchangeCreated("/", "new", "topic")]


def delete_exchange(scene: Scene) -> list[Event]:
    scene.client.declare_exchange("new")
    scene.client.send(m.ExchangeDelete(exchange="new"))
    return [e.ExchangeDeleted("/", "new")]


def declare_queue(scene: Scene) -> list[Event]:
    scene.client.declare("new")
    scene.client.declare("new")
    return [e.QueueCreated("/", "new")]


def delete_queue(scene: Scene) -> list[Event]:
    scene.client.send(m.QueueDelete(queue="q"))
    return [e.QueueDeleted("/", "q")]


def pause_queue(scene: Scene) -> list[Event]:
    for command in (commands.PauseQueue, commands.PauseQueue, commands.ResumeQueue, commands.ResumeQueue):
        scene.node.execute(command(vhost="/", name="q"))
    return [e.QueuePaused("/", "q", True), e.QueuePaused("/", "q", False)]


def purge_queue(scene: Scene) -> list[Event]:
    scene.client.send(m.QueuePurge(queue="q"))
    return [e.QueuePurged("/", "q", 1)]


def bind(scene: Scene) -> list[Event]:
    scene.client.bind("q", "amq.direct", "k")
    scene.client.bind("q", "amq.direct", "k")
    return [e.BindingCreated("/", "amq.direct", "q", "k")]


def unbind(scene: Scene) -> list[Event]:
    scene.client.bind("q", "amq.direct", "k")
    scene.client.send(m.QueueUnbind(queue="q", exchange="amq.direct", routing_key="k", arguments={}))
    return [e.BindingDeleted("/", "amq.direct", "q", "k")]


def consume(scene: Scene) -> list[Event]:
    scene.client.consume("q", "tag")
    return [e.ConsumerStarted("/", "q", "tag")]


def cancel(scene: Scene) -> list[Event]:
    scene.client.consume("q", "tag")
    scene.client.send(m.BasicCancel(consumer_tag="tag"))
    return [e.ConsumerCancelled("/", "q", "tag")]


def alarm(scene: Scene) -> list[Event]:
    scene.node.raise_alarm("disk")
    scene.node.raise_alarm("disk")
    return [e.AlarmRaised("disk")]


def clear_alarm(scene: Scene) -> list[Event]:
    scene.node.clear_alarm("disk")
    scene.node.raise_alarm("disk")
    scene.node.clear_alarm("disk")
    return [e.AlarmCleared("disk")]


def publish(scene: Scene) -> list[Event]:
    scene.client.call(m.QueuePurge(queue="q"), m.QueuePurgeOk)
    scene.client.publish("", "q", b"2")
    return [e.MessagePublished("/", scene.message(), ("q",))]  # type: ignore[arg-type]


def deliver(scene: Scene) -> list[Event]:
    message = scene.message()
    scene.client.consume("q", "tag")
    return [e.MessageDelivered("/", "q", message, "tag", 1, False)]  # type: ignore[arg-type]


def ack(scene: Scene) -> list[Event]:
    message = scene.message()
    scene.client.consume("q", "tag")
    scene.client.send(m.BasicAck(delivery_tag=1))
    return [e.MessageAcked("/", "q", message)]  # type: ignore[arg-type]


# --- what rules do ---


def take_over(scene: Scene) -> list[Event]:
    scene.client.declare("sac", arguments={"x-single-active-consumer": True})
    scene.client.consume("sac", "first")
    scene.client.consume("sac", "second")
    scene.client.send(m.BasicCancel(consumer_tag="first"))
    scene.client.send(m.BasicCancel(consumer_tag="second"))
    return [e.ActiveConsumerChanged("/", "sac", tag) for tag in ("first", "second", None)]


def time_out(scene: Scene) -> list[Event]:
    scene.client.consume("q", "tag")
    scene.world.advance(scene.node.limits.consumer_timeout_ms / 1000)
    scene.node.check_consumers()
    return [e.ConsumerTimedOut("/", "q", "client", 1)]


def expire_queue(scene: Scene) -> list[Event]:
    scene.client.declare("short", arguments={"x-expires": 1000})
    scene.world.advance(1)
    return [e.QueueExpired("/", "short")]


def reject(scene: Scene) -> list[Event]:
    message = scene.message()
    scene.client.consume("q", "tag")
    scene.client.send(m.BasicReject(delivery_tag=1, requeue=False))
    return [e.MessageDeadLettered("/", "q", message, "rejected", None)]  # type: ignore[arg-type]


def refuse(scene: Scene) -> list[Event]:
    arguments: Table = {"x-max-length": 0, "x-overflow": "reject-publish"}
    scene.client.declare("full", arguments=arguments)
    scene.client.publish("", "full", b"2")
    event = next(event for event in scene.seen if isinstance(event, e.MessageRefused))
    return [e.MessageRefused("/", "full", event.message)]


def deduplicate(scene: Scene) -> list[Event]:
    scene.client.declare("once", arguments={"x-message-deduplication": True})
    for _ in range(2):
        headers: Table = {"x-deduplication-header": 1}
        scene.client.publish("", "once", b"2", BasicProperties(headers=headers))
    event = next(event for event in scene.seen if isinstance(event, e.MessageDeduplicated))
    return [e.MessageDeduplicated("/", "once", event.message)]


def give_back(scene: Scene) -> list[Event]:
    scene.client.declare("again", arguments={"x-retry-delay-min": 250})
    scene.client.publish("", "again", b"2")
    scene.client.consume("again", "tag")
    scene.client.send(m.BasicReject(delivery_tag=1, requeue=True))
    event = next(event for event in scene.seen if isinstance(event, e.MessageReturns))
    return [e.MessageReturns("/", "again", event.message, 250)]


def schedule(scene: Scene) -> list[Event]:
    arguments: Table = {"x-delayed-type": "fanout"}
    scene.client.call(
        m.ExchangeDeclare(exchange="later", type="x-delayed-message", arguments=arguments),
        m.ExchangeDeclareOk,
    )
    scene.client.publish("later", "", b"2", BasicProperties(headers={"x-delay": 500}))
    event = next(event for event in scene.seen if isinstance(event, e.MessageScheduled))
    return [e.MessageScheduled("/", "later", event.message, scene.world.time_ms() + 500)]


ACTIONS: dict[type[Event], Callable[[Scene], list[Event]]] = {
    e.ConnectionOpened: connect,
    e.ConnectionClosed: disconnect,
    e.ConnectionBlocked: block,
    e.ConnectionUnblocked: unblock,
    e.AuthenticationFailed: wrong_password,
    e.ChannelOpened: open_channel,
    e.ChannelClosed: close_channel,
    e.Failure: fail,
    e.VhostCreated: add_vhost,
    e.VhostDeleted: delete_vhost,
    e.TracingChanged: switch_tracing,
    e.UserChanged: change_user,
    e.VhostLimitsChanged: limit_vhost,
    e.VhostMetadataChanged: describe_vhost,
    e.ParameterSet: set_parameter,
    e.ParameterCleared: clear_parameter,
    e.GlobalParameterSet: set_global_parameter,
    e.GlobalParameterCleared: clear_global_parameter,
    e.UserLimitsChanged: limit_user,
    e.PolicyChanged: put_policy,
    e.PolicyDeleted: delete_policy,
    e.ExchangeCreated: declare_exchange,
    e.ExchangeDeleted: delete_exchange,
    e.QueueCreated: declare_queue,
    e.QueueDeleted: delete_queue,
    e.QueuePaused: pause_queue,
    e.QueuePurged: purge_queue,
    e.BindingCreated: bind,
    e.BindingDeleted: unbind,
    e.ConsumerStarted: consume,
    e.ConsumerCancelled: cancel,
    e.AlarmRaised: alarm,
    e.AlarmCleared: clear_alarm,
    e.MessagePublished: publish,
    e.MessageDelivered: deliver,
    e.MessageAcked: ack,
    e.ActiveConsumerChanged: take_over,
    e.ConsumerTimedOut: time_out,
    e.QueueExpired: expire_queue,
    e.MessageDeadLettered: reject,
    e.MessageRefused: refuse,
    e.MessageDeduplicated: deduplicate,
    e.MessageReturns: give_back,
    e.MessageScheduled: schedule,
}


OF_THE_HTTP_API = {e.AdministrativeAction}  # tests/unit/management/test_audit.py has these
# tests/unit/management/test_shovels.py has these
OF_RELAYS = {e.ShovelStarted, e.ShovelFailed, e.ShovelStopped}


def test_every_kind_of_event_has_an_action() -> None:
    kinds = {v for v in vars(e).values() if isinstance(v, type) and issubclass(v, Event)}
    assert set(ACTIONS) == kinds - {Event} - OF_THE_HTTP_API - OF_RELAYS


@pytest.mark.parametrize("kind", ACTIONS, ids=lambda kind: kind.__name__)
def test_action_is_told_to_who_subscribed_to_its_kind(kind: type[Event]) -> None:
    scene = Scene()
    scene.start(kind)
    expected = ACTIONS[kind](scene)
    assert scene.seen == expected


@pytest.mark.parametrize("kind", ACTIONS, ids=lambda kind: kind.__name__)
def test_subscriber_to_all_events_is_told_of_each_kind(kind: type[Event]) -> None:
    scene = Scene()
    scene.start(Event)
    expected = ACTIONS[kind](scene)
    assert [event for event in scene.seen if type(event) is kind] == expected


def test_channels_of_a_connection_that_ends_are_told_as_closed() -> None:
    scene = Scene()
    scene.start(e.ChannelClosed)
    scene.client.connection.lost()
    assert [event.channel for event in scene.seen] == [1]  # type: ignore[attr-defined]


def test_message_got_by_basic_get_is_told_as_delivered() -> None:
    scene = Scene()
    scene.start(e.MessageDelivered)
    message = scene.message()
    scene.client.send(m.BasicGet(queue="q"))
    assert [event.message for event in scene.seen] == [message]  # type: ignore[attr-defined]


# --- subscribing ---


def make_events() -> tuple[Events, list[Exception]]:
    errors: list[Exception] = []
    return Events(errors.append), errors


def test_unsubscribed_callback_is_not_called_any_more() -> None:
    source, _ = make_events()
    seen: list[Event] = []
    unsubscribe = source.subscribe(e.VhostCreated, seen.append)
    others: list[Event] = []
    source.subscribe(e.VhostCreated, others.append)
    source.emit(e.VhostCreated("1"))
    unsubscribe()
    source.emit(e.VhostCreated("2"))
    assert seen == [e.VhostCreated("1")]
    assert others == [e.VhostCreated("1"), e.VhostCreated("2")]


def test_callback_may_unsubscribe_itself_while_it_is_called() -> None:
    source, errors = make_events()
    seen: list[Event] = []

    def once(event: Event) -> None:
        seen.append(event)
        unsubscribe()

    unsubscribe = source.subscribe(e.VhostCreated, once)
    source.subscribe(e.VhostCreated, seen.append)
    source.emit(e.VhostCreated("1"))
    source.emit(e.VhostCreated("2"))
    assert seen == [e.VhostCreated("1"), e.VhostCreated("1"), e.VhostCreated("2")]
    assert not errors


def test_failing_subscriber_is_reported_and_the_others_are_told() -> None:
    source, errors = make_events()
    error = RuntimeError("subscriber")
    seen: list[Event] = []

    def stumble(_event: Event) -> None:
        raise error

    source.subscribe(e.VhostCreated, stumble)
    source.subscribe(e.VhostCreated, seen.append)
    source.emit(e.VhostCreated("1"))
    assert errors == [error]
    assert seen == [e.VhostCreated("1")]


def test_failing_subscriber_does_not_fail_the_broker() -> None:
    scene = Scene()

    def stumble(_event: Event) -> None:
        raise RuntimeError("subscriber")

    scene.node.events.subscribe(Event, stumble)
    scene.client.publish("", "q", b"2")
    scene.client.consume("q")
    assert scene.client.bodies() == [b"1", b"2"]
    assert scene.world.errors


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        (e.MessagePublished, "published"),
        (e.MessageDelivered, "delivered"),
        (e.MessageAcked, "acked"),
    ],
)
def test_message_events_are_made_only_while_somebody_wants_them(kind: type[Event], flag: str) -> None:
    source, _ = make_events()
    flags = ("published", "delivered", "acked")
    unsubscribe = source.subscribe(kind, print)
    assert [name for name in flags if getattr(source, name)] == [flag]
    unsubscribe()
    assert not any(getattr(source, name) for name in flags)


def test_subscriber_to_all_events_wants_message_events() -> None:
    source, _ = make_events()
    source.subscribe(e.VhostCreated, print)
    assert not source.published
    unsubscribe = source.subscribe(Event, print)
    assert (source.published, source.delivered, source.acked) == (True, True, True)
    unsubscribe()
    assert (source.published, source.delivered, source.acked) == (False, False, False)


def test_sample_is_one_in_so_many_and_nothing_else_is_made() -> None:
    source = Events(raise_it)
    seen: list[str] = []
    source.subscribe(e.MessagePublished, lambda event: seen.append(event.vhost), one_in=3)
    made = publish_where_wanted(source, 7)
    assert (made, seen) == (["0", "3", "6"], ["0", "3", "6"])


def test_sample_is_the_same_beside_a_subscriber_to_all() -> None:
    source = Events(raise_it)
    seen: list[str] = []
    everything: list[Event] = []
    source.subscribe(e.MessagePublished, lambda event: seen.append(event.vhost), one_in=3)
    unsubscribe = source.subscribe(e.Event, everything.append)
    assert len(publish_where_wanted(source, 7)) == len(everything) == 7
    assert seen == ["0", "3", "6"]
    unsubscribe()
    assert len(publish_where_wanted(source, 6)) == 2


def publish_where_wanted(source: Events, count: int) -> list[str]:
    """Emit events as the path of a message does; return the names of those that were made."""
    message = Message(b"\0", b"\0", b"\0\0", b"", persistent=False)
    made = []
    for name in map(str, range(count)):
        if source.published and source.publishing.is_next():
            made.append(name)
            source.emit(e.MessagePublished(name, message, ()))
    return made


def raise_it(error: Exception) -> None:
    raise error
