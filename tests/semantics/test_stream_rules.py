"""Streams and time: retention, policies, who waits for whom, on a disk and a clock that move when told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.semantics.streams import STREAM, with_filter
from tests.support.fake_client import FakeClient
from tests.support.fakes import check_clients
from tests.support.frames import Content
from tests.support.machine import Machine
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, Timestamp
from warren.broker import commands
from warren.broker.stream import Stream
from warren.storage.data_files import DataFiles, FileKind, FileProblem
from warren.storage.verify import verify

SMALL: Table = {"x-stream-max-segment-size-bytes": 300}  # for three messages
BODY_BYTES = 60
YEAR_MS = 365 * 24 * 3600 * 1000


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    assert machine.world.errors == []
    machine.stop()
    machine.close()


@pytest.fixture
def client(machine: Machine) -> FakeClient:
    return machine.connect()


def declare(machine: Machine, client: FakeClient, arguments: Table | None = None) -> Stream:
    """The stream `s`."""
    client.send(m.QueueDeclare(queue="s", durable=True, arguments=STREAM | (arguments or {})))
    machine.run()
    assert any(isinstance(method, m.QueueDeclareOk) for method in client.methods())
    stream = machine.queues["s"]
    assert isinstance(stream, Stream)
    return stream


def put(
    machine: Machine, client: FakeClient, *numbers: int, properties: BasicProperties | None = None
) -> None:
    """Messages of the same size, which are safe then, with all that follows."""
    for number in numbers:
        client.publish("", "s", (b"%d" % number).ljust(BODY_BYTES, b"."), properties)
    settle(machine)


def settle(machine: Machine) -> None:
    machine.run()
    machine.store.write_marks()
    machine.housekeeping.run()


def put_policy(machine: Machine, definition: Table, *, operator: bool = False) -> None:
    machine.node.execute(
        commands.PutPolicy(
            vhost="/",
            name="p",
            pattern="",
            definition=definition,
            priority=0,
            apply_to="all",
            operator=operator,
        )
    )
    settle(machine)


def delete_policy(machine: Machine) -> None:
    machine.node.execute(commands.DeletePolicy(vhost="/", name="p", operator=False))
    settle(machine)


def consume(client: FakeClient, offset: object, *, prefetch: int = 100, tag: str = "c") -> None:
    client.send(m.BasicQos(prefetch_count=prefetch))
    client.consume("s", tag, arguments={"x-stream-offset": offset})  # type: ignore[dict-item]  # any
    client.world.run()


def numbers(contents: list[Content[m.Method]]) -> list[tuple[int, int]]:
    """Offsets and numbers of what was delivered."""
    found = []
    for content in contents:
        headers = content.properties.headers
        assert headers is not None
        offset = headers["x-stream-offset"]
        assert isinstance(offset, int)
        found.append((offset, int(content.body.rstrip(b"."))))
    return found


def read(machine: Machine, offset: object = "first") -> list[tuple[int, int]]:
    """What a new consumer gets."""
    client = machine.connect()
    consume(client, offset)
    found = numbers(client.contents())
    client.hang_up()
    return found


def same(*offsets: int) -> list[tuple[int, int]]:
    return [(offset, offset) for offset in offsets]


# --- what is safe ---


def test_consumers_get_what_is_safe_and_only_that(machine: Machine, client: FakeClient) -> None:
    declare(machine, client)
    other = machine.connect()
    consume(other, "first")
    other.frames()
    client.publish("", "s", b"0")
    machine.turn()
    assert other.contents() == []
    client.publish("", "s", b"1")
    machine.finish_round()
    assert numbers(other.contents()) == same(0)
    machine.finish_round()
    assert numbers(other.contents()) == same(1)


def test_confirm_waits_for_the_disk_also_of_transient_messages(machine: Machine) -> None:
    client = machine.connect(confirming=True)
    declare(machine, client)
    client.publish("", "s", b"0", BasicProperties(delivery_mode=1))
    machine.turn()
    assert client.methods() == []
    machine.run()
    assert client.methods() == [m.BasicAck(delivery_tag=1, multiple=False)]
    assert [message.body for message in machine.safe_messages("s")] == [b"0"]


def test_next_is_behind_what_is_safe(machine: Machine, client: FakeClient) -> None:
    declare(machine, client)
    put(machine, client, 0)
    client.publish("", "s", b"1")
    machine.turn()
    consume(client, "next")
    machine.run()
    assert numbers(client.contents()) == same(1)


def test_stream_may_have_more_messages_than_a_method_can_tell(machine: Machine, client: FakeClient) -> None:
    stream = declare(machine, client)
    stream.opened_log().count = 2**33
    client.send(m.QueueDeclare(queue="s", passive=True, arguments={}))
    assert client.methods() == [m.QueueDeclareOk(queue="s", message_count=2**32 - 1, consumer_count=0)]
    stream.opened_log().count = 0


# --- times ---


def test_consumer_begins_at_a_time(machine: Machine, client: FakeClient) -> None:
    declare(machine, client, SMALL)
    machine.pass_time(1.0)
    began = int(machine.world.time)
    for number in range(12):
        put(machine, client, number)
        machine.pass_time(10.0)
    for number in range(12):
        expected = same(*range(number, 12))
        assert read(machine, Timestamp(began + 10 * number)) == expected
        assert read(machine, f"{10 * (12 - number) + 1}s") == expected
    assert read(machine, Timestamp(began + 500)) == []


def test_times_do_not_go_down_when_the_clock_does_by_a_little(machine: Machine, client: FakeClient) -> None:
    declare(machine, client)
    put(machine, client, 0)
    before = machine.world.time
    machine.world.ahead_ms = -4_000
    put(machine, client, 1)
    machine.stop()
    machine.start()
    machine.world.ahead_ms = -8_000
    machine.node.clock.refresh()
    client = machine.connect()
    put(machine, client, 2)
    assert read(machine, Timestamp(int(before))) == same(0, 1, 2)


@pytest.mark.parametrize("restarted", [False, True])
def test_times_follow_a_clock_that_was_a_year_ahead(
    machine: Machine, client: FakeClient, restarted: bool
) -> None:
    """What came by the wrong clock lies between what came before and after it."""
    declare(machine, client, SMALL)
    began = int(machine.world.time) + 10
    for number in range(12):
        machine.pass_time(10.0)
        machine.world.ahead_ms = YEAR_MS if number in {4, 5, 6, 9} else 0
        put(machine, client, number)
    machine.world.ahead_ms = 0
    if restarted:
        machine.stop()
        machine.start()
    for number in (0, 1, 2, 3, 7, 8, 11):
        assert read(machine, Timestamp(began + 10 * number)) == same(*range(number, 12))
    assert read(machine, Timestamp(began + 500)) == []


# --- retention ---


def test_what_is_too_much_goes_in_whole_segments(machine: Machine, client: FakeClient) -> None:
    stream = declare(machine, client, SMALL | {"x-max-length-bytes": 1_000})
    for number in range(40):
        put(machine, client, number)
    files = list(Path(machine.data, "queues").rglob("*.seg"))
    assert stream.message_bytes == sum(file.stat().st_size for file in files) <= 1_000
    first = stream.first_offset
    assert 28 <= first <= 33
    assert read(machine) == same(*range(first, 40))
    assert stream.message_count == 40 - first


def test_most_messages_can_be_limited(machine: Machine, client: FakeClient) -> None:
    stream = declare(machine, client, SMALL | {"x-max-length": 7})
    put(machine, client, *range(40))
    put(machine, client, 40)
    assert 4 <= stream.message_count <= 7


@pytest.mark.parametrize("restarted", [False, True])
def test_message_by_a_clock_a_year_ahead_does_not_switch_off_max_age(
    machine: Machine, client: FakeClient, restarted: bool
) -> None:
    declare(machine, client, SMALL | {"x-max-age": "60s"})
    put(machine, client, *range(3))
    machine.world.ahead_ms = YEAR_MS
    put(machine, client, 3)
    machine.world.ahead_ms = 0
    put(machine, client, *range(4, 12))
    if restarted:
        machine.stop()
        machine.start()
    for _ in range(70):
        machine.pass_time(1.0)
    stream = machine.queues["s"]
    assert isinstance(stream, Stream)
    assert stream.first_offset >= 9  # the last segment stays
    settle(machine)
    problems: list[FileProblem] = []
    verify(DataFiles(machine.data), problems.append)
    assert [problem for problem in problems if problem.kind is FileKind.DAMAGE] == []


def test_last_segment_stays_however_old_or_large_it_is(machine: Machine, client: FakeClient) -> None:
    declare(machine, client, {"x-max-length-bytes": 1, "x-max-age": "1s"})
    put(machine, client, *range(5))
    machine.pass_time(10)
    assert read(machine) == same(*range(5))


def test_what_is_too_old_goes_without_anybody_publishing(machine: Machine, client: FakeClient) -> None:
    stream = declare(machine, client, SMALL | {"x-max-age": "30s"})
    for number in range(12):
        put(machine, client, number)
        machine.pass_time(2.0)
    assert stream.first_offset == 0
    for _ in range(20):
        machine.pass_time(1.0)
    settle(machine)
    assert 0 < stream.first_offset <= 9
    for _ in range(120):
        machine.pass_time(1.0)
    settle(machine)
    first = stream.first_offset
    assert first >= 9
    assert read(machine) == same(*range(first, 12))


def test_reader_that_retention_has_overtaken_goes_on_at_the_first_that_is_left(
    machine: Machine, client: FakeClient
) -> None:
    stream = declare(machine, client, SMALL | {"x-max-length-bytes": 1_000})
    other = machine.connect()
    consume(other, "first", prefetch=2)
    put(machine, client, *range(3))
    assert numbers(other.contents()) == same(0, 1)
    put(machine, client, *range(3, 40))
    put(machine, client, 40)
    first = stream.first_offset
    assert first > 3
    other.send(m.BasicAck(delivery_tag=2, multiple=True))
    machine.turn()
    assert numbers(other.contents()) == same(first, first + 1)


def test_offset_before_the_first_is_the_first(machine: Machine, client: FakeClient) -> None:
    stream = declare(machine, client, SMALL | {"x-max-length-bytes": 1_000})
    put(machine, client, *range(40))
    put(machine, client, 40)
    first = stream.first_offset
    assert first > 0
    assert read(machine, 0) == read(machine, "first") == same(*range(first, 41))


# --- policies ---


def test_policies_hold_while_they_are_there(machine: Machine, client: FakeClient) -> None:
    stream = declare(machine, client)
    put_policy(machine, {"stream-max-segment-size-bytes": 300})
    for number in range(12):
        put(machine, client, number)
    assert stream.first_offset == 0
    put_policy(machine, {"stream-max-segment-size-bytes": 300, "max-length-bytes": 1_000})
    first = stream.first_offset
    assert first > 0
    delete_policy(machine)
    put(machine, client, *range(12, 60))
    assert stream.first_offset == first
    put_policy(machine, {"max-age": "1s"})
    machine.pass_time(10)
    machine.pass_time(60)
    settle(machine)
    assert stream.first_offset > first
    assert read(machine) == same(*range(stream.first_offset, 60))


def test_lowest_age_holds(machine: Machine, client: FakeClient) -> None:
    stream = declare(machine, client, {"x-max-age": "1h"})
    put_policy(machine, {"max-age": "2h"})
    assert stream.rules.max_age == 3_600_000
    put_policy(machine, {"max-age": "1m"}, operator=True)
    assert stream.rules.max_age == 60_000


def test_rules_that_are_not_for_streams_are_passed_by(machine: Machine, client: FakeClient) -> None:
    stream = declare(machine, client)
    put_policy(machine, {"message-ttl": 1, "max-length": 10**6, "dead-letter-exchange": "x", "expires": 1})
    put(machine, client, 0)
    machine.pass_time(60)
    assert read(machine) == same(0)
    assert machine.queues["s"] is stream


def test_policy_for_streams_leaves_other_queues_alone(machine: Machine, client: FakeClient) -> None:
    put_policy(machine, {"max-age": "1s", "stream-max-segment-size-bytes": 100})
    queue = client.declare("q")
    assert (queue.rules.max_age, queue.rules.stream_max_segment_size_bytes) == (None, None)


# --- who waits ---


def test_consumer_may_hold_messages_for_as_long_as_it_likes(machine: Machine, client: FakeClient) -> None:
    declare(machine, client)
    put(machine, client, 0)
    other = machine.connect()
    consume(other, "first")
    assert numbers(other.contents()) == same(0)
    machine.pass_time(10 * machine.node.limits.consumer_timeout_ms / 1000)
    check_clients(machine.node, machine.world)
    other.send(m.BasicAck(delivery_tag=1))
    assert other.frames() == []


def test_slow_reader_holds_nobody_up(machine: Machine, client: FakeClient) -> None:
    """Neither those who publish nor those at the end; it has all to itself when it goes on."""
    declare(machine, client, SMALL)
    slow, quick = machine.connect(), machine.connect()
    consume(slow, "first", prefetch=1)
    consume(quick, "first", prefetch=65_535)
    for start in range(0, 100, 10):
        put(machine, client, *range(start, start + 10))
        assert numbers(quick.contents()) == same(*range(start, start + 10))
    assert numbers(slow.contents()) == same(0)
    for number in range(1, 100):
        slow.send(m.BasicAck(delivery_tag=number))
        machine.turn()
        assert numbers(slow.contents()) == same(number)


def test_filter_passes_by_what_it_does_not_want_and_waits(machine: Machine, client: FakeClient) -> None:
    declare(machine, client, {"x-stream-max-segment-size-bytes": 200_000})
    other = machine.connect()
    other.send(m.BasicQos(prefetch_count=100))
    other.consume("s", arguments={"x-stream-offset": "first", "x-stream-filter": "b"})
    other.world.run()
    other.frames()
    for value in "aabaaab":
        client.publish("", "s", b"0".ljust(100_000), with_filter(value))
        settle(machine)
    found = [content.properties.headers for content in other.contents()]
    assert [headers and headers["x-stream-offset"] for headers in found] == [2, 6]


def test_remembered_offset_beyond_the_end_passes_nothing_by(machine: Machine, client: FakeClient) -> None:
    """As when the end of the stream is lost."""
    stream = declare(machine, client)
    stream.store_offset("c", 1_000)
    put(machine, client, 0)
    client.send(m.BasicQos(prefetch_count=10))
    client.consume("s", arguments={"x-stream-automatic-offset-tracking": True})
    client.frames()
    put(machine, client, 1)
    assert numbers(client.contents()) == same(1)
