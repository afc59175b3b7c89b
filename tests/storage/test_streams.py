"""Streams over the end of the broker: what was confirmed is there, and no offset is used again."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.semantics.streams import STREAM, Publisher, declare_stream, deliveries, start, with_filter
from tests.storage.home import END_SIGNALS, Home, connected, eventually, message_count
from tests.support.amqp import AmqpClient
from tests.support.channel import AmqpChannel
from tests.support.errors import EndedError
from tests.support.frames import Frame, decode_contents, decode_methods
from tests.support.process import BrokerProcess
from warren.amqp import methods as m
from warren.amqp.table import Table
from warren.cli.main import main

SMALL: Table = {"x-stream-max-segment-size-bytes": 20_000}
SEED = 20_260_729
LIVES = 4
BATCHES_MAX = 30
BATCH = 40
PUBLISHING, CONSUMING = 1, 2


class Ledger:
    """What clients have seen: which message is at which offset, and which were confirmed."""

    def __init__(self) -> None:
        self.at: dict[int, bytes] = {}
        self.confirmed: set[bytes] = set()

    def saw(self, offset: int, body: bytes) -> None:
        assert self.at.setdefault(offset, body) == body, f"offset {offset} stood for another message"

    def note(self, frames: list[Frame], published: list[bytes]) -> None:
        for method in decode_methods(frame for frame in frames if frame.channel == PUBLISHING):
            if isinstance(method, m.BasicAck):
                first = 0 if method.multiple else method.delivery_tag - 1
                self.confirmed.update(published[first : method.delivery_tag])
        whole = frames_of_whole_contents([frame for frame in frames if frame.channel == CONSUMING])
        for content in decode_contents(whole):
            headers = content.properties.headers
            assert headers is not None
            offset = headers["x-stream-offset"]
            assert isinstance(offset, int)
            self.saw(offset, content.body)


def frames_of_whole_contents(frames: list[Frame]) -> list[Frame]:
    """Each is a method, a header and a body; the last one may not have come whole."""
    first = next((n for n, frame in enumerate(frames) if frame.is_a(m.BasicDeliver)), len(frames))
    return frames[first : first + (len(frames) - first) // 3 * 3]


def publish_until_killed(process: BrokerProcess, ledger: Ledger, rng: random.Random, life: int) -> None:
    """While another channel consumes what comes; the broker is killed in the middle of it."""
    client = AmqpClient.connect(process.address)
    publishing, consuming = client.channel(PUBLISHING), client.channel(CONSUMING)
    declare_stream(publishing, "s", SMALL)
    publishing.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    start(consuming, "s", prefetch=65_535, arguments={"x-stream-offset": "next"})
    published: list[bytes] = []
    for _ in range(rng.randint(2, BATCHES_MAX)):
        for _ in range(BATCH):
            published.append(b"%d.%d." % (life, len(published)) + bytes(rng.randrange(300)))
            publishing.publish("", "s", published[-1])
    frames = [client.read_any_frame() for _ in range(rng.randint(1, len(published)))]
    process.kill()
    try:
        while True:
            frames.append(client.read_any_frame())
    except EndedError:
        client.abort()
    ledger.note(frames, published)


def read_all(channel: AmqpChannel) -> list[tuple[int, bytes]]:
    """All that is there now."""
    count = message_count(channel, "s")
    start(channel, "s", prefetch=1_000)
    return list(deliveries(channel, count))


def test_offsets_are_never_used_again_however_often_the_broker_is_killed(home: Home) -> None:
    rng = random.Random(SEED)
    ledger = Ledger()
    for life in range(LIVES):
        with home.process() as process:
            if life:
                with connected(process) as channel:
                    found = read_all(channel)
                assert [offset for offset, _ in found] == list(range(len(found)))
                for offset, body in found:
                    ledger.saw(offset, body)
                assert ledger.confirmed <= {body for _, body in found}
                assert set(ledger.at) <= {offset for offset, _ in found}
            publish_until_killed(process, ledger, rng, life)
        process.check_log()
    assert ledger.confirmed
    assert len(home.segments()) > 1
    assert main(["store", "verify", str(home.data_dir)]) == 0


@pytest.mark.parametrize("ends_by", END_SIGNALS)
def test_stream_goes_on_where_it_was(home: Home, ends_by: signal.Signals) -> None:
    tracked: Table = {"x-stream-automatic-offset-tracking": True}
    for life in range(2):
        with home.life(ends_by=ends_by) as channel:
            declare_stream(channel, "s", SMALL)
            publisher = Publisher(channel.client)
            first = 300 * life
            publisher.put("s", *(b"%d" % number for number in range(first, first + 300)))
            start(channel, "s", "me", prefetch=1, arguments=tracked)
            assert list(deliveries(channel, 299)) == [
                (number, b"%d" % number) for number in range(299 * life, 299 * life + 299)
            ]
            assert message_count(publisher.channel, "s") == first + 300


def lose(directory: Path, suffix: str, how: str) -> None:
    for file in directory.glob(f"*.{suffix}"):
        file.unlink() if how == "lost" else file.write_bytes(file.read_bytes()[:-7] + b"damaged")


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_without_their_chunks_segments_are_read_all_the_same(home: Home, how: str) -> None:
    with home.life() as channel:
        declare_stream(channel, "s", SMALL)
        publisher = Publisher(channel.client)
        for number in range(300):
            publisher.send("s", b"%d" % number + bytes(300), with_filter("ab"[number % 2]))
        publisher.put("s", b"end")
    assert len(list(home.queue_directory().glob("*.chunks"))) > 3
    lose(home.queue_directory(), "chunks", how)
    with home.life() as channel:
        start(channel, "s", arguments={"x-stream-filter": "b"})
        assert [offset for offset, _ in deliveries(channel, 150)] == list(range(1, 300, 2))
        lose(home.queue_directory(), "chunks", how)  # by now they were written anew
        second = channel.client.channel(2)
        start(second, "s", arguments={"x-stream-filter": "a", "x-stream-offset": "1h"})
        assert [offset for offset, _ in deliveries(second, 150)] == list(range(0, 300, 2))


def test_offsets_go_on_when_retention_has_dropped_all_but_the_tail(home: Home) -> None:
    arguments: Table = SMALL | {"x-max-length-bytes": 30_000}
    with home.life(ends_by=signal.SIGKILL) as channel:
        declare_stream(channel, "s", arguments)
        publisher = Publisher(channel.client)
        publisher.put("s", *(b"%d" % number + bytes(500) for number in range(300)))
        eventually(lambda: len(home.segments()) <= 2, channel, "files of what is too much go")
    with home.life() as channel:
        Publisher(channel.client).put("s", b"300")
        found = read_all(channel)
        assert found[-1] == (300, b"300")
        assert found[0][0] > 200
        assert [offset for offset, _ in found] == list(range(found[0][0], 301))


def test_files_go_with_the_stream(home: Home) -> None:
    with home.life() as channel:
        channel.declare("s", exclusive=False, durable=True, arguments=STREAM | SMALL)
        publisher = Publisher(channel.client)
        publisher.put("s", *(bytes(500) for _ in range(200)))
        start(channel, "s", "me", prefetch=1, arguments={"x-stream-automatic-offset-tracking": True})
        list(deliveries(channel, 1))
        second = channel.client.channel(2)
        second.call(m.QueueDelete(queue="s"), m.QueueDeleteOk)
        eventually(lambda: not list((home.data_dir / "queues").iterdir()), second, "the directory goes")
