"""Numbers from clients, however extreme, and what is no number where one is expected.

Whatever it is, it is taken or refused with a reason: never 541, never a traceback in the log. What was
confirmed is there, after a restart as well, and so is what deduplication has to remember of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, settings
from hypothesis import given as given_any
from hypothesis import strategies as st

from tests.support.fake_client import FakeClient
from tests.support.frames import published
from tests.support.machine import Machine, small_limits
from warren import commands
from warren.amqp import methods as m
from warren.amqp.errors import AmqpError
from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import (
    Float32,
    Int8,
    Int16,
    Int64,
    OldInt64,
    Table,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
    Value,
    encode_value,
)
from warren.broker.limits import UserLimits, VhostLimits
from warren.broker.policy_settings import OPERATOR_SETTINGS, SETTINGS
from warren.broker.rules import ARGUMENTS
from warren.server.config import Config
from warren.server.config_error import ConfigError

pytestmark = pytest.mark.slow

EDGES = sorted(
    {
        sign * (2**bits + more)
        for bits in (0, 7, 8, 15, 16, 31, 32, 52, 53, 62, 63, 64)
        for more in (-1, 0, 1)
        for sign in (1, -1)
    }
    | {10, 100, 1_000, 3_153_600_000_000, 3_153_600_000_001}
)
SIZED_INTS = (Int8, UInt8, Int16, UInt16, UInt32, Int64, OldInt64, Timestamp)
ODD: list[Value] = [
    math.nan, math.inf, -math.inf, -0.0, 1.5, 1e308, Float32(3.5), Decimal("1.5"), Decimal(2**31 - 1),
    Decimal("1E-255"), True, False, None, "", "10", "-1", "1e3", "9" * 255, "nan", "7D", "0s",
    "999999999999Y", b"\xff", [], [1], {}, {"a": 1},
]  # fmt: skip


def encodes(value: Value) -> bool:
    try:
        encode_value(value)
    except (ValueError, OverflowError, struct.error, AmqpError):
        return False
    return True


def every_value() -> list[Value]:
    """The edges, the least and the most that each type can say, and what is no whole number."""
    sized: list[Value] = []
    for kind in SIZED_INTS:
        possible = [edge for edge in EDGES if fits(kind, edge)]
        sized += [kind(edge) for edge in (min(possible), 1, max(possible))]
    return [value for value in [*EDGES, *sized, *ODD] if encodes(value)]


def fits(kind: type[int], edge: int) -> bool:
    try:
        return encodes(kind(edge))
    except (ValueError, OverflowError):
        return False


VALUES = every_value()
values = st.sampled_from(VALUES) | st.integers(-(2**63), 2**63 - 1)
QUEUE_ARGUMENTS = sorted({rule.argument for rule in ARGUMENTS} | {"x-unknown"})
EXCHANGE_ARGUMENTS = ["x-cache-size", "x-cache-ttl", "hash-header", "alternate-exchange", "x-unknown"]
CONSUMER_ARGUMENTS = ["x-priority", "x-stream-offset", "x-browse", "x-stream-filter", "x-unknown"]
HEADERS = [
    "x-delay", "x-deliver-at", "x-cache-ttl", "x-deduplication-header", "x-death", "x-delivery-count",
    "x-stream-filter-value", "x-retry", "x-match", "x-group", "CC", "BCC",
]  # fmt: skip
SELECTORS = (
    "v > 9223372036854775807", "v * v * v / 3 = v", "v BETWEEN -1e308 AND 1e308", "-v < v + 1.5",
    "v IN (1, 2)",
)  # fmt: skip

EXTREME = settings(
    max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@contextmanager
def running() -> Iterator[Machine]:
    with TemporaryDirectory() as place, small_limits():
        machine = Machine(Path(place))
        machine.run()
        try:
            yield machine
            assert machine.world.errors == []
            machine.stop()
        finally:
            machine.close()


def settle(machine: Machine) -> None:
    machine.run()
    machine.node.end_turn()
    machine.run()
    assert machine.world.errors == [], machine.world.errors


def restart(machine: Machine) -> None:
    machine.stop()
    machine.start()
    settle(machine)


class Speaker:
    """A client that opens its channel again when that was closed for one of the expected reasons."""

    def __init__(self, machine: Machine, *, confirming: bool = False) -> None:
        self.machine = machine
        self.confirming = confirming
        self.client = FakeClient(machine.node, buffer=machine.buffer).open()
        self._select()

    def _select(self) -> None:
        self.published = 0
        if self.confirming:
            self.client.call(m.ConfirmSelect(), m.ConfirmSelectOk)

    def say(self, method: m.Method) -> bool:
        """Whether it was taken."""
        self.client.send(method)
        return self.hear()

    def hear(self) -> bool:
        settle(self.machine)
        self.answers = self.client.methods()
        closes = [answer for answer in self.answers if isinstance(answer, m.ChannelClose)]
        for close in closes:
            assert close.reply_code in {403, 404, 405, 406}, close
            assert " - " in close.reply_text
            self.client.send(m.ChannelCloseOk())
            self.client.call(m.ChannelOpen(), m.ChannelOpenOk)
            self._select()
        assert self.client.connection.state.name == "OPEN"
        return not closes

    def publish(self, exchange: str, key: str, headers: Table, **more: Any) -> bool:
        """Whether it was confirmed."""
        self.published += 1
        number = self.published
        properties = BasicProperties(headers=headers, delivery_mode=PERSISTENT, **more)
        self.client.connection.feed(published(exchange, key, b"m", properties))
        if not self.hear():
            return False
        acks = [answer.delivery_tag for answer in self.answers if isinstance(answer, m.BasicAck)]
        return max(acks, default=0) >= number


@pytest.mark.parametrize("argument", QUEUE_ARGUMENTS)
def test_every_argument_of_a_queue_takes_or_refuses_every_value(argument: str) -> None:
    """Each that is taken holds for a message and a consumer, and is there after a restart."""
    with running() as machine:
        speaker = Speaker(machine, confirming=True)
        taken = []
        for number, value in enumerate(VALUES):
            arguments: Table = {argument: value}
            if argument in {"x-max-age", "x-stream-max-segment-size-bytes"}:
                arguments["x-queue-type"] = "stream"
            if argument.startswith(("x-cache", "x-deduplication")):
                arguments["x-message-deduplication"] = True
            if argument == "x-retry-delay-max":
                arguments["x-retry-delay-min"] = 1
            name = f"q{number}"
            if speaker.say(m.QueueDeclare(queue=name, durable=True, arguments=arguments)):
                taken.append(name)
                speaker.publish("", name, {"x-deduplication-header": number})
        restart(machine)
        expires = argument == "x-expires"
        assert expires or machine.queues.keys() >= set(taken)


@pytest.mark.parametrize("argument", EXCHANGE_ARGUMENTS)
@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-delayed-message"])
def test_every_argument_of_an_exchange_takes_or_refuses_every_value(argument: str, kind: str) -> None:
    with running() as machine:
        speaker = Speaker(machine, confirming=True)
        for number, value in enumerate(VALUES):
            arguments: Table = {"x-delayed-type": "fanout", "x-message-deduplication": True, argument: value}
            name = f"x{number}"
            if speaker.say(m.ExchangeDeclare(exchange=name, type=kind, durable=True, arguments=arguments)):
                speaker.publish(name, "k", {"x-deduplication-header": "once", "x-delay": 5})
        restart(machine)


def test_every_argument_of_a_consumer_takes_or_refuses_every_value() -> None:
    with running() as machine:
        speaker = Speaker(machine)
        speaker.say(m.QueueDeclare(queue="stream", durable=True, arguments={"x-queue-type": "stream"}))
        speaker.say(m.QueueDeclare(queue="plain", arguments={}))
        for argument in CONSUMER_ARGUMENTS:
            for value in VALUES:
                for queue in ("stream", "plain"):
                    speaker.say(m.BasicQos(prefetch_count=10))
                    consume = m.BasicConsume(queue=queue, consumer_tag="c", arguments={argument: value})
                    if speaker.say(consume):
                        assert speaker.say(m.BasicCancel(consumer_tag="c"))


KEYS_OF_CONSISTENT_HASH = ["0", "1", "-1", "1.5", "1e3", "9" * 19, "9" * 255, "²", "٣", str(2**63 - 1)]


def test_weights_of_bindings_are_bounded() -> None:
    with running() as machine:
        speaker = Speaker(machine, confirming=True)
        speaker.say(m.QueueDeclare(queue="q", durable=True, arguments={}))
        speaker.say(m.ExchangeDeclare(exchange="x", type="x-consistent-hash", durable=True, arguments={}))
        bind = [
            speaker.say(m.QueueBind(queue="q", exchange="x", routing_key=key, arguments={}))
            for key in KEYS_OF_CONSISTENT_HASH
        ]
        assert bind == [False, True, False, False, False, False, False, False, True, True]
        assert speaker.publish("x", "any", {})
        restart(machine)
        assert machine.queues["q"].message_count == 1


@pytest.mark.parametrize("header", HEADERS)
def test_message_with_any_number_in_a_header_is_refused_or_safe(header: str) -> None:
    """In a queue with every rule that looks at messages, by an exchange that delays and remembers them."""
    with running() as machine:
        speaker = Speaker(machine, confirming=True)
        remembering: Table = {"x-message-deduplication": True, "x-cache-size": 1_000_000}
        rules: Table = {"x-max-priority": 5, "x-group-header": "x-group", "x-message-ttl": 10**12}
        speaker.say(m.QueueDeclare(queue="q", durable=True, arguments=remembering | rules))
        speaker.say(m.QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}))
        delayed: Table = remembering | {"x-delayed-type": "fanout"}
        speaker.say(
            m.ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=delayed)
        )
        speaker.say(m.QueueBind(queue="q", exchange="x", arguments={}))
        speaker.say(m.QueueBind(queue="s", exchange="x", arguments={}))
        confirmed = 0
        for number, value in enumerate(VALUES):
            headers: Table = {"x-deduplication-header": f"{number}", header: value}
            confirmed += speaker.publish("x", "k", headers)
        speaker.publish("x", "k", {"x-deduplication-header": "first", "x-delay": 10**9})
        machine.pass_time(1)
        settle(machine)
        before = counts(machine)
        assert confirmed >= 1
        assert before[0] >= confirmed or header == "x-deduplication-header"  # some say the same
        restart(machine)
        assert counts(machine) == before
        again = Speaker(machine, confirming=True)
        again.publish("x", "k", {"x-deduplication-header": "first"})
        assert counts(machine) == before


def counts(machine: Machine) -> tuple[int, int, int]:
    """What has arrived or is to, in the queue and in the stream, and what is remembered."""
    delayed, q, s, seen = (
        machine.queues[name].message_count for name in ("amq.delayed.x", "q", "s", "amq.dedup.x")
    )
    return delayed + q, delayed + s, seen


@pytest.mark.parametrize("lasting", [2**63 - 1, Int64(2**63 - 1), 10**15, Timestamp(2**64 - 1)])
def test_time_to_remember_that_has_no_end_loses_no_note_of_its_batch(lasting: int) -> None:
    """All notes of a batch are written together, and confirms follow."""
    with running() as machine:
        speaker = Speaker(machine, confirming=True)
        arguments: Table = {"x-message-deduplication": True, "x-cache-ttl": 10**9}
        speaker.say(m.QueueDeclare(queue="q", durable=True, arguments=arguments))
        frames = b""
        for number in range(3):
            headers: Table = {"x-deduplication-header": f"{number}"}
            if number == 1:
                headers["x-cache-ttl"] = lasting
            frames += published("", "q", b"m", BasicProperties(headers=headers, delivery_mode=PERSISTENT))
        speaker.client.connection.feed(frames)
        speaker.hear()
        count, steps = machine.queues["q"].purge()
        assert count == 3
        for _ in steps:
            pass
        restart(machine)
        again = Speaker(machine)
        for number in range(3):
            again.publish("", "q", {"x-deduplication-header": f"{number}"})
        assert machine.queues["q"].message_count == 0


@pytest.mark.parametrize("expiration", ["", "-1", "1.5", "1e3", "0", "9" * 18, "9" * 255, "٣", " 1", "nan"])
@pytest.mark.parametrize("timestamp", [0, 2**63 - 1, 2**64 - 1])
def test_properties_with_extreme_numbers_are_refused_or_safe(expiration: str, timestamp: int) -> None:
    with running() as machine:
        speaker = Speaker(machine, confirming=True)
        dead: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "s"}
        speaker.say(m.QueueDeclare(queue="q", durable=True, arguments={"x-max-priority": 255} | dead))
        speaker.say(m.QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}))
        taken = speaker.publish("", "q", {}, expiration=expiration, timestamp=timestamp, priority=255)
        assert taken is (expiration == "0")
        assert speaker.publish("", "q", {}, timestamp=timestamp, priority=255)
        restart(machine)
        assert [machine.queues[name].message_count for name in "qs"] == [1, int(taken)]


@pytest.mark.parametrize("selector", SELECTORS)
def test_selectors_survive_every_number(selector: str) -> None:
    with running() as machine:
        speaker = Speaker(machine)
        speaker.say(m.QueueDeclare(queue="q", arguments={}))
        for value in VALUES:
            speaker.publish("", "q", {"v": value})
        arguments: Table = {"x-selector": selector, "x-browse": True}
        assert speaker.say(m.BasicConsume(queue="q", consumer_tag="c", no_ack=True, arguments=arguments))


def policy(operator: bool, definition: Table, priority: Any = 0) -> commands.PutPolicy:
    return commands.PutPolicy(
        vhost="/", name="p", pattern="", definition=definition, operator=operator, priority=priority
    )


@pytest.mark.parametrize("operator", [False, True])
def test_every_setting_of_a_policy_takes_or_refuses_every_value(operator: bool) -> None:
    with running() as machine:
        speaker = Speaker(machine, confirming=True)
        speaker.say(m.QueueDeclare(queue="q", durable=True, arguments={}))
        speaker.say(m.QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}))
        for setting in sorted(OPERATOR_SETTINGS if operator else SETTINGS):
            for value in VALUES:
                execute(machine, policy(operator, {setting: value}))
                settle(machine)
        execute(machine, commands.DeletePolicy(vhost="/", name="p", operator=operator))
        for value in VALUES:
            execute(machine, policy(operator, {"max-length": 5}, priority=value))
        restart(machine)


def execute(machine: Machine, command: commands.Command) -> bool:
    """Whether it was taken; if not, with a reason."""
    reason = "none was needed"
    try:
        machine.node.execute(command)
        taken = True
    except AmqpError as error:
        taken, reason = False, error.text
    assert reason
    return taken


@pytest.mark.parametrize("kind", [commands.SetUserLimits, commands.SetVhostLimits])
def test_every_limit_takes_or_refuses_every_value_and_clients_live_with_it(kind: Any) -> None:
    of_user = kind is commands.SetUserLimits
    whose = {"user": "guest"} if of_user else {"vhost": "/"}
    with running() as machine:
        for field in fields(UserLimits if of_user else VhostLimits):
            for value in VALUES:
                if execute(machine, kind(**whose, **{field.name: value})) and isinstance(value, int):
                    if value == -1 or value > 100:
                        speaker = Speaker(machine)
                        speaker.publish("", "q", {})
                        speaker.client.hang_up()
                    settle(machine)
            machine.node.execute(kind(**whose))
        restart(machine)


NUMBERS = [f.name for f in fields(Config) if isinstance(getattr(Config, f.name, None), int | float)]


@given_any(name=st.sampled_from(NUMBERS), value=values | st.floats() | st.integers())
@example(name="memory_watermark", value=math.inf)
@example(name="receive_buffer_bytes", value=2**31)
@EXTREME
def test_settings_are_checked_or_within_what_the_broker_can_do(name: str, value: Any) -> None:
    if isinstance(getattr(Config, name), bool) or not isinstance(value, int | float):
        return
    shown = name
    try:
        given: dict[str, Any] = {name: value}
        value = getattr(Config(**given), name)
    except ConfigError as error:
        value, shown = 0, str(error)
    assert name in shown
    assert abs(value) <= 2**60


@given_any(
    arguments=st.dictionaries(st.sampled_from(QUEUE_ARGUMENTS), values, max_size=6),
    headers=st.dictionaries(st.sampled_from(HEADERS), values, max_size=5),
)
@EXTREME
def test_any_arguments_and_headers_together_are_refused_or_safe(arguments: Table, headers: Table) -> None:
    with running() as machine:
        speaker = Speaker(machine, confirming=True)
        if speaker.say(m.QueueDeclare(queue="q", durable=True, arguments=arguments)):
            for _ in range(2):
                speaker.publish("", "q", headers)
            speaker.say(m.BasicGet(queue="q"))
        restart(machine)
