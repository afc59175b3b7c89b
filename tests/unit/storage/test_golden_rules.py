"""A data directory from the time before segments had states is read back whole: tests/golden/data-2.

A broker wrote it until it was killed. It has priorities, deduplication, delays, dead letters, policies, a
stream with a named offset, and rounds in the journal, of which the zeros at the end were cut off. Segments
were of 4 KiB.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.process import BrokerProcess
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.cli.main import main

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[2] / "golden" / "data-2"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests, each of which has queues of its own."""
    copy = tmp_path_factory.mktemp("golden") / "data-2"
    shutil.copytree(DATA, copy)
    with BrokerProcess(copy) as process:
        yield process
    process.check_log()


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[AmqpChannel]:
    with AmqpClient.connect(broker.address) as client:
        yield client.channel()


def persistent(headers: Table | None = None, priority: int | None = None) -> BasicProperties:
    return BasicProperties(delivery_mode=2, headers=headers, priority=priority)


def messages_in(channel: AmqpChannel, queue: str) -> int:
    declare = m.QueueDeclare(queue=queue, passive=True, arguments={})
    return channel.call(declare, m.QueueDeclareOk).message_count


def test_directory_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "verify", str(DATA)]) == 0
    assert capsys.readouterr().out.endswith(": all sound\n")


def test_messages_that_were_not_acked_come_back_in_order(channel: AmqpChannel) -> None:
    got = list(iter(lambda: channel.try_get("plain"), None))
    bodies = [b"%d " % number * (400 if number <= 12 else 20) for number in range(6, 15)]
    assert [one.body for one in got] == bodies
    assert [one.method.redelivered for one in got] == [True, True, *[False] * 7]  # 6 was returned, 7 was out


def test_priorities_come_back_and_their_policy_holds(channel: AmqpChannel) -> None:
    old = (5, 4, 4, 3, 3, 3, 2, 1, 0, 0)
    assert channel.drain("ranked") == [b"priority %d" % priority for priority in old]
    for priority in range(15):
        channel.publish("", "ranked", b"new", persistent(priority=priority))
    assert messages_in(channel, "ranked") == 12  # which the policy allows


@pytest.mark.parametrize(("exchange", "queue"), [("", "once"), ("once-x", "from-once")])
def test_duplicates_are_still_known(channel: AmqpChannel, exchange: str, queue: str) -> None:
    for key in ("a", "b", "c", "d"):
        channel.publish(exchange, queue, b"again", persistent({"x-deduplication-header": key}))
    assert channel.drain(queue) == [b"first of a", b"first of b", b"first of c", b"again"]


def test_delayed_messages_still_wait(channel: AmqpChannel) -> None:
    assert messages_in(channel, "amq.delayed.delayed") == 2  # due in the year 2100
    assert channel.drain("later") == [b"at once"]
    channel.publish("delayed", "k", b"routed", persistent())
    assert channel.drain("later") == [b"routed"]


def test_dead_letters_come_back(channel: AmqpChannel) -> None:
    assert channel.drain("rejecting") == [b"stays", b"stays, too"]
    dead = channel.get("dead")
    deaths = (dead.properties.headers or {})["x-death"]
    assert isinstance(deaths, list)
    assert isinstance(deaths[0], dict)
    assert (dead.body, deaths[0]["queue"], deaths[0]["reason"]) == (b"goes", "rejecting", "rejected")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"x-stream-offset": "first"}, [*range(40), -1]),
        ({"x-stream-offset": 30}, [*range(30, 40), -1]),
        ({"x-stream-offset": "first", "x-stream-filter": "odd"}, list(range(1, 40, 2))),
    ],
    ids=["from the first", "from an offset", "with a filter"],
)
def test_streams_come_back(channel: AmqpChannel, arguments: Table, expected: list[int]) -> None:
    channel.call(m.BasicQos(prefetch_count=100), m.BasicQosOk)
    channel.consume("stream", arguments=arguments)
    bodies = [channel.expect_delivery().body for _ in expected]
    assert bodies == [b"the last" if number < 0 else b"%d " % number * 100 for number in expected]


def test_named_offsets_come_back(broker: BrokerProcess) -> None:
    request = Request(f"{broker.http_url}/api/streams/%2F/stream/offsets")  # noqa: S310 - it is http
    request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
    with urlopen(request) as answer:  # noqa: S310 - the same
        assert json.load(answer) == [{"name": "billing", "offset": 17}]
