from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, make_node
from tests.support.http_api import make_broker
from warren.amqp import methods as m
from warren.broker import commands
from warren.broker.events import (
    AdministrativeAction,
    Event,
    Failure,
    ShovelFailed,
    ShovelStarted,
    ShovelStopped,
)
from warren.broker.node import Node
from warren.broker.vhost_metadata import VhostMetadata
from warren.server import log

MADE_ELSEWHERE: list[Event] = [
    AdministrativeAction("guest", "127.0.0.1", "PUT /api/vhosts/v", 201),
    ShovelStarted("/", "s"),
    ShovelFailed("/", "s", "no answer"),
    ShovelStopped("/", "s", "deleted"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root, warren = logging.getLogger(), logging.getLogger("warren")
    before = root.handlers[:], root.level, warren.level
    yield
    root.handlers[:], level, warren_level = before
    root.setLevel(level)
    warren.setLevel(warren_level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def logged_node(world: FakeWorld, stream: io.StringIO, level: str = "info") -> Node:
    log.configure(level, stream)
    node = make_node(world)
    log.log_events(log.get_logger(), node.events)
    return node


def test_lines_are_json_when_nobody_watches() -> None:
    stream = io.StringIO()
    log.configure("info", stream)
    log.get_logger().info("broker started", port=5672)
    (line,) = lines(stream)
    assert line.pop("timestamp")
    assert line == {"event": "broker started", "level": "info", "port": 5672}


def test_lines_are_for_people_on_a_terminal() -> None:
    stream = Terminal()
    log.configure("info", stream)
    log.get_logger().info("broker started", port=5672)
    assert "broker started" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


@pytest.mark.parametrize(
    ("level", "shown"),
    [("debug", ["debug", "info", "error"]), ("info", ["info", "error"]), ("error", ["error"])],
)
def test_level_hides_what_is_below_it(level: str, shown: list[str]) -> None:
    stream = io.StringIO()
    log.configure(level, stream)
    for each in ("debug", "info", "error"):
        getattr(log.get_logger(), each)("something")
    assert [line["level"] for line in lines(stream)] == shown


def test_error_is_logged_with_its_traceback_in_one_line() -> None:
    stream = io.StringIO()
    node = logged_node(FakeWorld(), stream)
    node.events.emit(Failure("client", RuntimeError("a bug")))
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["connection"]) == ("internal error", "error", "client")
    assert "RuntimeError: a bug" in str(line["exception"])


def test_what_happens_is_logged_with_its_fields() -> None:
    stream = io.StringIO()
    node = logged_node(FakeWorld(), stream)
    client = FakeClient(node).open()
    client.connection.lost()
    shown = [{name: value for name, value in line.items() if name != "timestamp"} for line in lines(stream)]
    assert shown == [
        {
            "event": "connection opened",
            "level": "info",
            "connection": "client",
            "user": "guest",
            "vhost": "/",
        },
        {
            "event": "connection closed",
            "level": "info",
            "connection": "client",
            "reason": "client unexpectedly closed the connection",
        },
    ]


def test_every_logged_event_can_be_written() -> None:
    """No event has a field whose name the logging module reserves."""
    stream, world = io.StringIO(), FakeWorld()
    node = logged_node(world, stream, "debug")
    client = FakeClient(node).open()
    client.send(m.ChannelOpen(), 2)
    client.send(m.ChannelClose(reply_code=200), 2)
    client.frames()
    client.declare("q")
    client.declare_exchange("e")
    client.publish("", "q", b"x")
    client.declare("short", arguments={"x-expires": 1, "x-single-active-consumer": True})
    client.consume("short", "active")
    client.send(m.BasicCancel(consumer_tag="active"))
    world.advance(1)
    client.send(m.ChannelOpen(), 2)
    client.send(m.BasicGet(queue="q"), 2)
    world.advance(node.limits.consumer_timeout_ms / 1000)
    node.check_consumers()
    client.frames()
    node.raise_alarm("memory")
    client.publish("", "q", b"x")
    node.clear_alarm("memory")
    world.run()
    node.execute(commands.AddVhost(name="v"))
    node.execute(commands.PauseQueue(vhost="/", name="q"))
    node.execute(commands.DeleteQueue(vhost="/", name="q"))
    node.execute(commands.DeleteExchange(vhost="/", name="e"))
    node.execute(commands.SetVhostLimits(vhost="v", max_queues=1))
    node.execute(commands.SetUserLimits(user="guest", max_channels=5))
    node.execute(commands.PutPolicy(vhost="v", name="p", pattern="", definition={"expires": 5}))
    node.execute(commands.DeletePolicy(vhost="v", name="p"))
    node.execute(commands.SetVhostMetadata(vhost="v", metadata=VhostMetadata("mine")))
    node.execute(commands.SetParameter(vhost="v", component="shovel", name="s", value=1))
    node.execute(commands.ClearParameter(vhost="v", component="shovel", name="s"))
    node.execute(commands.SetGlobalParameter(name="g", value=1))
    node.execute(commands.ClearGlobalParameter(name="g"))
    node.execute(commands.SetTracing(vhost="v", on=True))
    node.execute(commands.DeleteVhost(name="v"))
    node.execute(commands.DeleteUser(name="guest"))
    other = FakeClient(node)
    other.greet()
    other.authenticate("guest")
    world.run_threads()
    client.connection.lost()
    for event in MADE_ELSEWHERE:
        node.events.emit(event)
    assert not world.errors
    texts = {text for _, text in log.WHAT_TO_LOG.values()}
    assert texts == {line["event"] for line in lines(stream)}


def test_passwords_and_messages_are_not_logged() -> None:
    stream, world = io.StringIO(), FakeWorld()
    node = logged_node(world, stream, "debug")
    client = FakeClient(node)
    client.greet()
    client.authenticate("guest", "my-password")
    world.run_threads()
    FakeClient(node).open().publish("amq.fanout", "k", b"my-message")
    assert "authentication failed" in stream.getvalue()
    assert "my-" not in stream.getvalue()


def test_tracebacks_on_a_terminal_are_without_local_variables() -> None:
    stream = Terminal()
    log.configure("info", stream)

    def fail(password: str) -> None:
        raise ValueError(f"{len(password)} characters")

    try:
        fail("my-password")
    except ValueError as error:
        log.get_logger().error("internal error", exc_info=error)
    assert "11 characters" in stream.getvalue()
    assert "fail(" in stream.getvalue(), "the traceback is there"
    assert "my-password" not in stream.getvalue().replace('fail("my-password")', "")


async def test_what_is_read_back_at_a_restart_is_not_told_as_new(tmp_path: Path) -> None:
    stream = io.StringIO()
    log.configure("debug", stream)
    async with make_broker(tmp_path) as broker:
        broker.execute(commands.AddVhost(name="kept"))
    first = [line["vhost"] for line in lines(stream) if line["event"] == "vhost created"]
    assert first == ["/", "kept"]
    stream.seek(0)
    stream.truncate()
    async with make_broker(tmp_path) as broker:
        broker.execute(commands.AddVhost(name="new"))
    told = [line["vhost"] for line in lines(stream) if line["event"] == "vhost created"]
    assert told == ["new"]
