"""Streams that are copied from one broker to another, both of them real."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.unit.moving.pair import PROPERTIES, Got, Pair, bodies, channel_of, declare, publish, uri_of
from warren.amqp.properties import BasicProperties
from warren.cli.main import main
from warren.client.api import Api
from warren.client.http_url import parse_http_url
from warren.moving import stream_copy
from warren.moving.drain import Moved
from warren.moving.outlet import Outlet, exchange_for
from warren.moving.queues import QueueInfo
from warren.moving.stream_copy import StreamCopy
from warren.moving.stream_notes import Note, StreamNotes
from warren.moving.stream_tap import reading_client, stream_message


class Killed(BaseException):
    """Stands for a SIGKILL: nothing of the copy runs after it."""


@pytest.fixture
def stream(pair: Pair) -> str:
    """A stream that both have."""
    name = f"moving-{uuid.uuid4().hex}"
    for broker in pair:
        declare(broker, name, queue_type="stream")
    return name


@pytest.fixture
def api(pair: Pair) -> Iterator[Api]:
    with Api(parse_http_url(pair.here.http_url.replace("://", "://guest:guest@"))) as api:
        yield api


def copy(pair: Pair, api: Api, stream: str, *, batch: int = 1000) -> Moved:
    info = QueueInfo("/", stream, "stream", durable=True, auto_delete=False)
    source, to = uri_of(pair.there), uri_of(pair.here)
    with Outlet(to) as outlet:
        return StreamCopy(source, to, outlet, api, lambda _count: None, batch=batch).copy(info)


def copy_killed(
    pair: Pair, api: Api, stream: str, monkeypatch: pytest.MonkeyPatch, *, batch: int, notes: int
) -> None:
    """A copy that is killed when it has published a batch, and is about to note it; `notes` come before."""
    put = StreamNotes.put
    made: list[Note] = []

    def put_some(self: StreamNotes, note: Note) -> None:
        if len(made) == notes:
            raise Killed
        made.append(note)
        put(self, note)

    with monkeypatch.context() as patched:
        patched.setattr(StreamNotes, "put", put_some)
        with pytest.raises(Killed):
            copy(pair, api, stream, batch=batch)


def read(pair: Pair, stream: str, count: int) -> list[Got]:
    """So many messages of our stream, and it has no more."""
    client = reading_client(uri_of(pair.here), stream, "first", batch=10_000)
    assert client.ready() == count
    while len(client.held) < count:
        client.gather(10)
    client.close()
    found = [stream_message(delivery).message for delivery in client.held]
    return [Got(each.exchange_name, each.key, each.properties, each.body) for each in found]


def bodies_in(pair: Pair, stream: str, count: int) -> list[bytes]:
    return [got.body for got in read(pair, stream, count)]


def test_messages_are_copied_in_order_and_byte_for_byte(pair: Pair, api: Api, stream: str) -> None:
    publish(pair.there, stream, bodies(250))
    assert copy(pair, api, stream, batch=100) == Moved(moved=250)
    assert read(pair, stream, 250) == [Got("", stream, PROPERTIES, body) for body in bodies(250)]


def test_message_without_headers_has_none_afterwards(pair: Pair, api: Api, stream: str) -> None:
    plain = BasicProperties(message_id="m").encode()
    publish(pair.there, stream, [b"x"], properties=plain)
    assert copy(pair, api, stream).moved == 1
    assert read(pair, stream, 1) == [Got("", stream, plain, b"x")]


def test_another_copy_takes_only_what_is_new(pair: Pair, api: Api, stream: str) -> None:
    publish(pair.there, stream, bodies(20))
    assert copy(pair, api, stream).moved == 20
    assert copy(pair, api, stream).moved == 0
    publish(pair.there, stream, bodies(5))
    assert copy(pair, api, stream).moved == 5
    assert bodies_in(pair, stream, 25) == bodies(20) + bodies(5)


def test_empty_stream_is_copied_at_once(pair: Pair, api: Api, stream: str) -> None:
    assert copy(pair, api, stream) == Moved()


@pytest.mark.parametrize("notes", [0, 1, 2, 3])
def test_copy_that_was_killed_goes_on_with_each_message_once(
    pair: Pair, api: Api, stream: str, monkeypatch: pytest.MonkeyPatch, notes: int
) -> None:
    """The first note is made before anything is published."""
    publish(pair.there, stream, bodies(100))
    copy_killed(pair, api, stream, monkeypatch, batch=30, notes=notes)
    assert copy(pair, api, stream, batch=7).problem == ""
    assert bodies_in(pair, stream, 100) == bodies(100)


def test_messages_of_others_are_told_from_those_that_were_copied_before_a_kill(
    pair: Pair, api: Api, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(pair.there, stream, bodies(50))
    publish(pair.here, stream, [b"early"])
    copy_killed(pair, api, stream, monkeypatch, batch=20, notes=2)
    publish(pair.here, stream, [b"late"] * 3)
    copy_killed(pair, api, stream, monkeypatch, batch=5, notes=0)
    publish(pair.here, stream, [b"last"])
    assert copy(pair, api, stream, batch=20).problem == ""
    found = bodies_in(pair, stream, 55)
    assert [body for body in found if body.isdigit()] == bodies(50)
    assert [body for body in found if not body.isdigit()] == [b"early", b"late", b"late", b"late", b"last"]


def test_one_copy_at_a_time(pair: Pair, api: Api, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_copy, "LOCK_SECONDS_MAX", 0.0)
    publish(pair.there, stream, bodies(3))
    other = channel_of(pair.here)
    other.queue_declare(exchange_for(stream), exclusive=True)
    assert "405" in copy(pair, api, stream).problem
    other.connection.close()
    monkeypatch.undo()
    assert copy(pair, api, stream).moved == 3


def test_stream_that_was_made_anew_is_not_taken_for_the_old_one(pair: Pair, api: Api, stream: str) -> None:
    publish(pair.there, stream, bodies(10))
    copy(pair, api, stream)
    channel = channel_of(pair.there)
    channel.queue_delete(stream)
    channel.connection.close()
    declare(pair.there, stream, queue_type="stream")
    publish(pair.there, stream, bodies(3))
    result = copy(pair, api, stream)
    assert result.moved == 0
    assert "made anew" in result.problem


def test_routing_key_is_kept_and_no_other_queue_gets_the_message(pair: Pair, api: Api, stream: str) -> None:
    channel = channel_of(pair.there)
    channel.queue_bind(stream, "amq.topic", "a.*")
    channel.connection.close()
    publish(pair.there, "a.b", [b"x"], exchange="amq.topic")
    assert copy(pair, api, stream) == Moved(moved=1, rerouted=1)
    assert read(pair, stream, 1) == [Got(exchange_for(stream), "a.b", PROPERTIES, b"x")]
    assert copy(pair, api, stream).moved == 0


def test_table_tells_that_streams_are_copied(
    pair: Pair, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"{stream}-classic-here"
    declare(pair.there, other, queue_type="stream")
    declare(pair.here, other)
    for name in (stream, other):
        publish(pair.there, name, bodies(3))
    urls = [broker.http_url.replace("://", "://guest:guest@") for broker in pair]
    words = ["--url", urls[0], "--to", urls[1], "--no-definitions", "--json"]
    assert main(["import", "rabbitmq", *words]) == 1
    rows = {row["queue"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[stream] == {
        "vhost": "/",
        "queue": stream,
        "moved": 3,
        "left": 0,
        "differences": "copied: the stream there keeps its messages",
    }
    assert (rows[other]["moved"], rows[other]["left"]) == (0, 3)
    assert rows[other]["differences"].endswith("a stream is copied to a stream only")
    channel = channel_of(pair.there)
    channel.queue_delete(other)
    channel.connection.close()
