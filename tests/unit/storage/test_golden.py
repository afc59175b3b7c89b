"""Files that an earlier broker wrote are read by this one, and this one writes them in the same way."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.errors import UnexpectedError
from tests.support.frames import Content
from tests.support.process import BrokerProcess
from tests.unit.storage import golden_contents as contents
from tests.unit.storage import golden_log
from tests.unit.storage.golden_contents import ALL_TYPES, KINDS, LONG, PERSISTENT, UTF8, Golden
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.cli.main import main
from warren.storage.ack_file import read_fates
from warren.storage.files import names_in
from warren.storage.format import (
    ACKED,
    SEGMENT_MAGIC,
    check_header,
    checksum_by_table,
    records,
    scan,
)
from warren.storage.index import decode_dues, decode_index, without_bodies
from warren.storage.problems import Problems
from warren.storage.recovery import recover
from warren.storage.stream_segment import decode_chunks

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[2] / "golden"
DATA = GOLDEN / "data-1"


def golden_file(suffix: str, log: str = "log-1") -> bytes:
    return (GOLDEN / log / f"{golden_log.BASE:020}.{suffix}").read_bytes()


# --- the formats ---


@pytest.mark.parametrize(
    ("log", "suffix", "made"),
    [
        ("log-1", "seg", golden_log.SEGMENT),
        ("log-1", "acks", golden_log.ACKS),
        ("log-2", "seg", golden_log.TIMED_SEGMENT),
        ("log-2", "idx", golden_log.INDEX_2),
        ("log-2", "due", golden_log.DUES),
        ("stream-1", "seg", golden_log.STREAM_SEGMENT),
        ("stream-1", "chunks", golden_log.CHUNKS),
        ("log-3", "seg", golden_log.EPOCH_SEGMENT),
    ],
    ids=[
        "segment",
        "acks",
        "segment with times",
        "index",
        "dues",
        "segment of a stream",
        "chunks",
        "segment with an epoch",
    ],
)
def test_same_values_still_give_the_same_bytes(log: str, suffix: str, made: bytes) -> None:
    assert made == golden_file(suffix, log)


def test_golden_segment_is_read_as_it_was_written() -> None:
    data = golden_file("seg")
    check_header(SEGMENT_MAGIC, data, golden_log.BASE)
    found = list(records(data))
    assert [(r.position - golden_log.BASE, r.time_ms - golden_log.TIME_MS) for r in found] == [
        (relative, ms) for relative, ms, _ in golden_log.RECORDS
    ]
    for record, (_, _, written) in zip(found, golden_log.RECORDS, strict=True):
        read = record.message
        assert (read.exchange, read.routing_key) == (written.exchange, written.routing_key)
        assert (read.properties, read.body) == (written.properties, written.body)
        assert read.persistent == written.persistent


def test_golden_segment_with_an_epoch_can_be_read_by_its_description_alone() -> None:
    data = golden_file("seg", "log-3")
    magic, version, crc, base, epoch = struct.unpack_from("<8sIIQQ", data)
    assert (magic, version, base, epoch) == (b"WARREN\0S", 2, golden_log.BASE, golden_log.EPOCH)
    assert crc == checksum_by_table(data[:12] + data[16:32])
    assert data[32:] == golden_file("seg")[32:]


def test_golden_segments_of_both_versions_are_recovered_with_their_epochs(tmp_path: Path) -> None:
    for number, log in ((1, "log-1"), (2, "log-3")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / f"{golden_log.BASE:020}.seg").write_bytes(golden_file("seg", log))
    epochs = []
    for number in (1, 2):
        directory = str(tmp_path / str(number))
        found = recover(directory, Problems(print), names_in(directory), marks_may_be_lost=False)
        epochs += [(segment.epoch, segment.count) for segment in found.segments]
    assert epochs == [(0, len(golden_log.RECORDS)), (golden_log.EPOCH, len(golden_log.RECORDS))]


def test_golden_index_of_version_1_is_that_of_the_golden_segment() -> None:
    index = decode_index(golden_file("idx"), golden_log.BASE)
    found = scan(golden_file("seg"), golden_log.BASE)
    assert (index.without_bodies, index.dues) == (True, 0)
    assert (index.count, index.end, index.entries) == (found.count, found.end, without_bodies(found.entries))


def test_golden_index_and_due_file_are_those_of_the_golden_segment() -> None:
    index = decode_index(golden_file("idx", "log-2"), golden_log.BASE)
    dues = decode_dues(golden_file("due", "log-2"), golden_log.BASE, index)
    found = scan(golden_file("seg", "log-2"), golden_log.BASE)
    assert (index.count, index.end, index.entries) == (found.count, found.end, found.entries)
    assert (index.without_bodies, dues) == (False, found.dues)


def test_golden_index_and_due_file_can_be_read_by_their_description_alone() -> None:
    data = golden_file("idx", "log-2")
    magic, version, crc, base, count, end, due_count, zero = struct.unpack_from("<8sIIQIIII", data)
    assert (magic, version, base, count, zero) == (b"WARREN\0I", 2, golden_log.BASE, len(golden_log.TIMED), 0)
    assert crc == checksum_by_table(data[:12] + data[16:])
    assert end == golden_log.TIMED_OFFSETS[-1]
    assert list(struct.iter_unpack("<III", data[40:])) == [
        (relative, offset, len(message.body))
        for (relative, message, _), offset in zip(golden_log.TIMED, golden_log.TIMED_OFFSETS, strict=False)
    ]
    data = golden_file("due", "log-2")
    assert data[:8] + data[16:32] == b"WARREN\0D" + struct.pack("<QII", base, due_count, end)
    assert checksum_by_table(data[:12] + data[16:]) == int.from_bytes(data[12:16], "little")
    assert list(struct.iter_unpack("<IIQ", data[32:])) == [
        (relative, offset, due)
        for (relative, _, due), offset in zip(golden_log.TIMED, golden_log.TIMED_OFFSETS, strict=False)
        if due is not None
    ]


def test_golden_chunks_are_read_as_they_were_written() -> None:
    count, end, (last, last_ms), chunks = decode_chunks(golden_file("chunks", "stream-1"), golden_log.BASE)
    assert (count, end) == (len(golden_log.FILTERED), golden_log.FILTERED_OFFSETS[-1])
    assert (last, last_ms) == (golden_log.BASE + count - 1, golden_log.TIME_MS + 1000)
    assert chunks.first_ms() == golden_log.TIME_MS


def test_golden_chunks_can_be_read_by_their_description_alone() -> None:
    data = golden_file("chunks", "stream-1")
    magic, version, crc, base, count, end, last, last_ms = struct.unpack_from("<8sIIQIIQQ", data)
    assert (magic, version, base, count) == (b"WARREN\0C", 1, golden_log.BASE, len(golden_log.FILTERED))
    assert crc == checksum_by_table(data[:12] + data[16:])
    assert (end, last) == (golden_log.FILTERED_OFFSETS[-1], base + count - 1)
    assert last_ms == golden_log.TIME_MS + 1000
    first, second = struct.iter_unpack("<IIQII64s", data[48:])
    assert first == (0, 32, golden_log.TIME_MS, 1, 0, bloom("a", "b", "c"))
    assert second == (3, golden_log.FILTERED_OFFSETS[3], golden_log.TIME_MS + 5, 0, 0, bloom("é", "a", "b"))


def bloom(*values: str) -> bytes:
    """Three bits of 512 for each value: the nines of bits of its checksum, from the lowest on."""
    bits = 0
    for value in values:
        hashed = checksum_by_table(value.encode())
        for shift in (0, 9, 18):
            bits |= 1 << (hashed >> shift & 511)
    return bits.to_bytes(64, "little")


def test_golden_ack_file_is_read_as_it_was_written() -> None:
    file = GOLDEN / "log-1" / f"{golden_log.BASE:020}.acks"
    fates, bad, size = read_fates(file, golden_log.BASE)
    assert (bad, size) == (0, file.stat().st_size)
    told = {place: fates.of(golden_log.BASE + place) for place in (0, 1, 2, 2**22 - 1)}
    assert told == {0: ACKED, 1: ACKED, 2: 0, 2**22 - 1: 70_000}


def test_golden_segment_can_be_read_by_its_description_alone() -> None:
    data = golden_file("seg")
    magic, version, crc, base, zero = struct.unpack_from("<8sIIQQ", data)
    assert (magic, version, base, zero) == (b"WARREN\0S", 1, golden_log.BASE, 0)
    assert crc == checksum_by_table(data[:12] + data[16:32])
    at, bodies = 32, []
    while at < len(data):
        crc, length, _position, _time_ms, properties_length, _flags = struct.unpack_from("<IIQQII", data, at)
        assert crc == checksum_by_table(data[at + 4 : at + length])
        exchange_length = data[at + 32]
        key_length = data[at + 33 + exchange_length]
        bodies.append(data[at + 34 + exchange_length + key_length + properties_length : at + length])
        at += (length + 7) // 8 * 8
    assert bodies == [message.body for _, _, message in golden_log.RECORDS]


# --- a data directory ---


def copy_of_golden(path: Path) -> Path:
    """To be read by a broker, which changes it."""
    copy = path / "data-1"
    shutil.copytree(DATA, copy)
    return copy


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """For all who take nothing out of it."""
    with BrokerProcess(copy_of_golden(tmp_path_factory.mktemp("golden"))) as process:
        yield process
    process.check_log()


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[AmqpChannel]:
    with AmqpClient.connect(broker.address) as client:
        yield client.channel()


Got: TypeAlias = list[Content[m.BasicGetOk]]


def drain(channel: AmqpChannel, queue: str) -> Got:
    return list(iter(lambda: channel.try_get(queue), None))


COUNTING = """
[[policies]]
name = "counting"
pattern = ""
definition = { delivery-limit = 1000 }
"""


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Got]:
    """All messages, by the names of their queues."""
    data = copy_of_golden(tmp_path_factory.mktemp("drained"))
    config = data.with_name("warren.toml")
    config.write_text(COUNTING)
    with BrokerProcess(data, "--config", str(config)) as broker:
        with AmqpClient.connect(broker.address) as client:
            channel = client.channel()
            got = {queue: drain(channel, queue) for queue in ("kinds", "long")}
        with AmqpClient.connect(broker.address, vhost=contents.VHOST) as client:
            got[contents.QUEUE_UTF8] = drain(client.channel(), contents.QUEUE_UTF8)
    return got


def as_published(properties: BasicProperties) -> BasicProperties:
    """Without the header that says how often a message was delivered before."""
    headers = {k: v for k, v in (properties.headers or {}).items() if k != "x-delivery-count"}
    return replace(properties, headers=headers or None)


def as_golden(got: Got, expected: list[Golden]) -> list[Golden]:
    """With the positions that these messages have to have, since clients do not see those."""
    return [
        Golden(
            golden.position,
            one.body,
            as_published(one.properties),
            one.method.exchange,
            one.method.routing_key,
            one.method.redelivered,
        )
        for golden, one in zip(expected, got, strict=True)
    ]


@pytest.mark.parametrize(
    ("queue", "expected"), [("kinds", KINDS), ("long", LONG), (contents.QUEUE_UTF8, UTF8)]
)
def test_all_messages_come_back_in_order(drained: dict[str, Got], queue: str, expected: list[Golden]) -> None:
    assert as_golden(drained[queue], expected) == expected


def test_number_of_deliveries_comes_back(drained: dict[str, Got]) -> None:
    counts = [(one.properties.headers or {}).get("x-delivery-count") for one in drained["kinds"][:3]]
    assert counts == [3, 1, None]


def test_types_of_header_values_come_back(drained: dict[str, Got]) -> None:
    headers = next(one.properties.headers for one in drained["kinds"] if one.body == b"all types")
    assert headers is not None
    assert {name: type(value) for name, value in headers.items()} == {
        name: type(value) for name, value in ALL_TYPES.items()
    }


def test_all_is_redelivered_if_the_machine_went_down(tmp_path: Path) -> None:
    data = copy_of_golden(tmp_path)
    (data / "running").write_text("another boot")
    with BrokerProcess(data) as broker, AmqpClient.connect(broker.address) as client:
        got = drain(client.channel(), "long")
    assert [one.body for one in got] == [golden.body for golden in LONG]
    assert all(one.method.redelivered for one in got)


def test_messages_are_there_again_after_a_second_start(tmp_path: Path) -> None:
    data = copy_of_golden(tmp_path)
    with BrokerProcess(data):
        pass
    with BrokerProcess(data) as broker, AmqpClient.connect(broker.address) as client:
        assert as_golden(drain(client.channel(), "long"), LONG) == LONG


EXCHANGES: dict[str, tuple[str, Table, dict[str, bool]]] = {
    "events": ("topic", {}, {}),
    "alles": ("headers", {**ALL_TYPES, "alternate-exchange": "events"}, {}),
    "innen": ("fanout", {}, {"internal": True, "auto_delete": True}),
}
QUEUES: dict[str, tuple[Table, dict[str, bool]]] = {
    "kinds": (contents.QUEUE_ARGUMENTS, {}),
    "long": ({}, {}),
    "orders.empty": ({}, {"auto_delete": True}),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_exchanges_come_back_with_their_arguments(channel: AmqpChannel, name: str) -> None:
    kind, arguments, flags = EXCHANGES[name]
    channel.declare_exchange(name, kind, durable=True, arguments=arguments, **flags)
    other = m.ExchangeDeclare(
        exchange=name, type=kind, arguments={}, auto_delete=not flags.get("auto_delete")
    )
    channel.send(other)
    channel.expect_close(406)


@pytest.mark.parametrize("name", QUEUES)
def test_queues_come_back_with_their_arguments(channel: AmqpChannel, name: str) -> None:
    arguments, flags = QUEUES[name]
    channel.declare(name, durable=True, exclusive=False, arguments=arguments, **flags)
    channel.send(m.QueueDeclare(queue=name, durable=True, arguments={"x-max-length": 1}, **flags))
    channel.expect_close(406)


@pytest.mark.parametrize("name", ["gone", "transient"])
def test_queue_that_was_deleted_or_transient_does_not_come_back(channel: AmqpChannel, name: str) -> None:
    channel.send(m.QueueDeclare(queue=name, passive=True, arguments={}))
    channel.expect_close(404)


def test_transient_exchange_does_not_come_back(channel: AmqpChannel) -> None:
    channel.send(m.ExchangeDeclare(exchange="flüchtig", passive=True, arguments={}))
    channel.expect_close(404)


def messages_in(channel: AmqpChannel, queue: str) -> int:
    """What this channel published before is in it by then."""
    declare = m.QueueDeclare(queue=queue, passive=True, arguments={})
    return channel.call(declare, m.QueueDeclareOk).message_count


@pytest.mark.parametrize(
    ("exchange", "key", "headers"),
    [
        ("events", "grüße.und.küsse", {}),
        ("alles", "", {"all types": ALL_TYPES}),
        ("alles", "grüße.over the alternate", {}),
    ],
)
def test_bindings_and_alternate_exchanges_come_back(
    channel: AmqpChannel, exchange: str, key: str, headers: Table
) -> None:
    before = messages_in(channel, "kinds")
    channel.publish(exchange, key, b"new", BasicProperties(headers=headers))
    assert messages_in(channel, "kinds") == before + 1


def test_bindings_between_exchanges_come_back(channel: AmqpChannel) -> None:
    queue = channel.declare().queue
    channel.bind(queue, "innen")
    channel.publish("events", "any", b"new")
    assert channel.drain(queue) == [b"new"]


@pytest.mark.parametrize(("value", "more"), [(1, 1), (2, 0)])
def test_bindings_of_another_vhost_come_back(broker: BrokerProcess, value: int, more: int) -> None:
    with AmqpClient.connect(broker.address, vhost=contents.VHOST) as client:
        channel = client.channel()
        before = messages_in(channel, contents.QUEUE_UTF8)
        channel.publish("köpfe", "", b"new", BasicProperties(headers={"a": value}))
        assert messages_in(channel, contents.QUEUE_UTF8) == before + more


def test_users_come_back_with_their_passwords(broker: BrokerProcess) -> None:
    AmqpClient.connect(broker.address, user="orders", password=contents.ORDERS_PASSWORD).close()
    for user, password in (("orders", "wrong"), ("nobody", ""), ("nobody", "nobody")):
        with pytest.raises(UnexpectedError, match="403"):
            AmqpClient.connect(broker.address, user=user, password=password)


@pytest.mark.parametrize(
    ("exchange", "key"), [("alles", "orders.new"), ("events", "others.new")], ids=["exchange", "topic"]
)
def test_permissions_come_back(broker: BrokerProcess, exchange: str, key: str) -> None:
    with AmqpClient.connect(broker.address, user="orders", password=contents.ORDERS_PASSWORD) as client:
        channel = client.channel()
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        channel.publish("events", "orders.new", b"may")
        channel.expect(m.BasicAck)
        channel.publish(exchange, key, b"may not")
        channel.expect_close(403)


def test_numbers_of_queues_and_positions_go_on(tmp_path: Path) -> None:
    data = copy_of_golden(tmp_path)
    with BrokerProcess(data) as broker, AmqpClient.connect(broker.address) as client:
        channel = client.channel()
        channel.declare("new", durable=True, exclusive=False)
        channel.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        for queue in ("new", "kinds"):
            channel.publish("", queue, b"new", PERSISTENT)
            channel.expect(m.BasicAck)
    assert {path.name for path in (data / "queues").iterdir()} == {"2", "3", "5", "6"}
    (segment,) = (data / "queues" / "2").glob("*.seg")
    assert [record.position for record in records(segment.read_bytes())] == [*range(1, 7), 8, 9, 10]


def test_golden_directory_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in DATA.rglob("*")}
    assert main(["store", "verify", str(DATA)]) == 0
    assert capsys.readouterr() == ("4 queues, 5 segments, 18 records, 20391 bytes checked: all sound\n", "")
    assert {path: path.stat().st_mtime_ns for path in DATA.rglob("*")} == before


def test_directory_is_sound_when_a_broker_has_used_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = copy_of_golden(tmp_path)
    with BrokerProcess(data) as broker, AmqpClient.connect(broker.address) as client:
        client.channel().drain("kinds")
    assert main(["store", "verify", str(data)]) == 0
    assert capsys.readouterr().out.endswith(": all sound\n")
