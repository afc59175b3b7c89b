"""Messages that are moved from one broker to another, both of them real."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pika
import pytest

from tests.support.recorded_api import RecordedApi
from tests.unit.moving.pair import (
    PROPERTIES,
    Got,
    Pair,
    bodies,
    channel_of,
    declare,
    messages_in,
    publish,
    uri_of,
)
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.cli.main import main
from warren.moving import takeover
from warren.moving import tap as module
from warren.moving.drain import Drain, Moved
from warren.moving.outlet import Outlet, exchange_for
from warren.moving.queues import QueueInfo, differences, queues_in
from warren.moving.report import Taken
from warren.moving.tap import filled_among


def plain(name: str, **arguments: object) -> QueueInfo:
    return QueueInfo("/", name, "classic", durable=True, auto_delete=False, arguments=arguments)


def move(pair: Pair, queue: str | QueueInfo, *, batch: int = 1000) -> Moved:
    with Outlet(uri_of(pair.here)) as outlet:
        drain = Drain(uri_of(pair.there), outlet, lambda _count: None, batch=batch)
        return drain.move(plain(queue) if isinstance(queue, str) else queue)


def test_messages_arrive_in_order_and_byte_for_byte(pair: Pair, queue: str) -> None:
    publish(pair.there, queue, bodies(250))
    assert move(pair, queue, batch=100) == Moved(moved=250)
    assert messages_in(pair.here, queue) == [Got("", queue, PROPERTIES, body) for body in bodies(250)]
    assert messages_in(pair.there, queue) == []


def test_body_of_many_frames_arrives_whole(pair: Pair, queue: str) -> None:
    body = bytes(range(256)) * 4000
    publish(pair.there, queue, [body, b""])
    assert move(pair, queue).moved == 2
    assert [got.body for got in messages_in(pair.here, queue)] == [body, b""]


def test_routing_key_is_kept_and_no_other_queue_gets_the_message(pair: Pair, queue: str) -> None:
    declare(pair.here, f"{queue}-other")
    for broker in pair:
        channel = channel_of(broker)
        channel.queue_bind(queue, "amq.topic", "a.*")
        channel.connection.close()
    channel = channel_of(pair.here)
    channel.queue_bind(f"{queue}-other", "amq.topic", "a.*")
    publish(pair.there, "a.b", [b"x"], exchange="amq.topic")
    assert move(pair, queue) == Moved(moved=1, rerouted=1)
    assert messages_in(pair.here, queue) == [Got(exchange_for(queue), "a.b", PROPERTIES, b"x")]
    assert messages_in(pair.here, f"{queue}-other") == []
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:  # our exchange is gone
        channel.exchange_declare(exchange_for(queue), passive=True)
    assert closed.value.reply_code == 404
    channel.connection.close()


def test_message_with_further_keys_is_not_sent_to_them_again(pair: Pair, queue: str) -> None:
    for broker in pair:
        declare(broker, f"{queue}-cc")
    headers: Table = {"CC": [f"{queue}-cc"]}
    publish(pair.there, queue, [b"x"], properties=BasicProperties(message_id="m", headers=headers).encode())
    assert move(pair, queue).moved == 1
    assert [got.key for got in messages_in(pair.here, queue)] == [queue]
    assert messages_in(pair.here, f"{queue}-cc") == []


def test_what_is_refused_here_stays_there(pair: Pair) -> None:
    name = f"moving-{uuid.uuid4().hex}"
    declare(pair.there, name)
    declare(pair.here, name, max_length=2, overflow="reject-publish")
    publish(pair.there, name, bodies(5))
    result = move(pair, name)
    assert (result.moved, result.left) == (2, 3)
    assert "refused" in result.problem
    assert [got.body for got in messages_in(pair.there, name)] == [b"2", b"3", b"4"]


def test_exchange_that_an_earlier_run_left_is_made_anew(pair: Pair, queue: str) -> None:
    declare(pair.here, f"{queue}-wrong")
    channel = channel_of(pair.here)
    channel.exchange_declare(exchange_for(queue), "fanout")
    channel.queue_bind(f"{queue}-wrong", exchange_for(queue))
    channel.connection.close()
    channel = channel_of(pair.there)
    channel.queue_bind(queue, "amq.fanout")
    channel.connection.close()
    publish(pair.there, "key", [b"y"], exchange="amq.fanout")
    assert move(pair, queue).moved == 1
    assert messages_in(pair.here, f"{queue}-wrong") == []


def test_queue_that_another_consumer_has_for_itself_is_left(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALLED_SECONDS", 0.2)
    name = f"moving-{uuid.uuid4().hex}"
    for broker in pair:
        declare(broker, name, single_active_consumer=True)
    channel = channel_of(pair.there)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(name, lambda *_delivery: None)
    publish(pair.there, name, bodies(3))
    result = move(pair, plain(name, **{"x-single-active-consumer": True}))
    assert (result.moved, result.left, result.others) == (0, 2, 1)
    assert "another consumer" in result.problem
    channel.connection.close()


def test_queue_that_is_not_there_is_a_problem_of_its_own(pair: Pair) -> None:
    result = move(pair, "absent")
    assert result.moved == 0
    assert "404" in result.problem


def test_names_that_are_too_long_for_an_exchange_are_shortened() -> None:
    assert exchange_for("q") == "warren.import.q"
    assert len(exchange_for("q" * 255)) <= 255
    assert exchange_for("q" * 254 + "a") != exchange_for("q" * 254 + "b")


# --- the command ---


def run(pair: Pair, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, object]]]:
    source = pair.there.http_url.replace("://", "://guest:guest@")
    to = pair.here.http_url.replace("://", "://guest:guest@")
    code = main(["import", "rabbitmq", "--url", source, "--to", to, "--no-definitions", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_command_prints_a_row_for_each_queue(
    pair: Pair, queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(pair.there, f"{queue}-alone")
    publish(pair.there, queue, bodies(3))
    code, rows = run(pair, capsys)
    found = {row["queue"]: row for row in rows}
    assert found[queue] == {"vhost": "/", "queue": queue, "moved": 3, "left": 0, "differences": ""}
    assert found[f"{queue}-alone"]["differences"] == "is not here"
    assert code == 0
    publish(pair.there, f"{queue}-alone", bodies(1))
    code, rows = run(pair, capsys)
    assert next(row for row in rows if row["queue"] == f"{queue}-alone")["left"] == 1
    assert code == 1
    messages_in(pair.there, f"{queue}-alone")


def test_messages_that_are_out_with_consumers_there_are_told(
    pair: Pair, queue: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "LOOK_SECONDS", 0.0)
    publish(pair.there, queue, bodies(3))
    channel = channel_of(pair.there)
    assert channel.basic_get(queue)[2] == b"0"
    code, rows = run(pair, capsys)
    channel.connection.close()
    assert code == 1
    assert next(row for row in rows if row["queue"] == queue) == {
        "vhost": "/",
        "queue": queue,
        "moved": 2,
        "left": 0,
        "differences": "messages that are out with consumers there: 1",
    }
    assert [got.body for got in messages_in(pair.there, queue)] == [b"0"]


def test_messages_that_a_consumer_lets_go_of_meanwhile_are_moved(
    pair: Pair, queue: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(pair.there, queue, bodies(3))
    channel = channel_of(pair.there)
    channel.basic_get(queue)

    def let_go(_seconds: float) -> None:
        if channel.connection.is_open:
            channel.connection.close()

    monkeypatch.setattr("warren.moving.takeover.time.sleep", let_go)
    code, rows = run(pair, capsys)
    assert code == 0
    assert next(row for row in rows if row["queue"] == queue)["moved"] == 3
    assert sorted(got.body for got in messages_in(pair.here, queue)) == bodies(3)


def test_messages_that_come_to_a_queue_after_it_was_emptied_are_moved(
    pair: Pair,
    queue: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Dead letters do. The queue itself is asked: figures of a management API are old, or there are none."""
    take_all = takeover.Takeover._take_all

    def take_all_and_publish(self: takeover.Takeover, taken: list[Taken]) -> None:
        take_all(self, taken)
        publish(pair.there, queue, bodies(2))

    monkeypatch.setattr(takeover.Takeover, "_take_all", take_all_and_publish)
    file = tmp_path / "definitions.json"
    gone = {"vhost": "/", "name": f"{queue}-gone", "durable": True}
    file.write_text(json.dumps({"queues": [gone, {"vhost": "/", "name": queue, "durable": True}]}))
    to = pair.here.http_url.replace("://", "://guest:guest@")
    words = ["--definitions", str(file), "--amqp", pair.there.address.url(), "--to", to, "--json"]
    assert main(["import", "rabbitmq", *words]) == 1
    rows = {row["queue"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows[queue]["moved"], rows[queue]["left"]) == (2, 0)
    assert "404" in rows[f"{queue}-gone"]["differences"]


def test_queues_that_are_gone_are_not_filled(pair: Pair, queue: str) -> None:
    publish(pair.there, queue, bodies(1))
    names = ["absent", queue, "absent too"]
    assert filled_among(uri_of(pair.there), names) == [queue]


def test_table_is_printed_even_if_the_last_question_fails(
    pair: Pair, queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(pair.there, queue, bodies(3))
    with RecordedApi() as source:
        listeners = [{"protocol": "amqp", "port": pair.there.address.port}]
        row = {"vhost": "/", "name": queue, "durable": True}
        source.answers = [(200, {"listeners": listeners}), (200, [row]), (500, {"reason": "broken"})]
        to = pair.here.http_url.replace("://", "://guest:guest@")
        words = ["--url", source.url, "--to", to, "--no-definitions", "--json"]
        assert main(["import", "rabbitmq", *words]) == 1
    out, err = capsys.readouterr()
    assert [found["moved"] for found in json.loads(out)] == [3]
    assert "broken" in err


def test_without_messages_nothing_is_moved(
    pair: Pair, queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(pair.there, queue, bodies(3))
    code, rows = run(pair, capsys, "--no-messages")
    assert code == 0
    assert next(row for row in rows if row["queue"] == queue)["moved"] == 0
    assert len(messages_in(pair.there, queue)) == 3


def test_source_must_be_named() -> None:
    assert main(["import", "rabbitmq", "--to", "http://guest:guest@127.0.0.1:1"]) == 2


# --- comparing queues ---


def test_differences_are_told_in_words() -> None:
    there = QueueInfo("/", "q", "quorum", durable=True, auto_delete=False, arguments={"x": 1})
    here = QueueInfo("/", "q", "classic", durable=True, auto_delete=False, arguments={"x": 1})
    assert differences(there, here) == ["type quorum there, classic here"]
    assert differences(there, there) == []
    assert differences(there, None) == ["is not here"]


def test_queues_of_a_file_of_definitions() -> None:
    definitions = {
        "queues": [
            {"name": "a", "vhost": "/", "durable": True, "arguments": {"x-queue-type": "stream"}},
            {"name": "b", "vhost": "v", "durable": False, "auto_delete": True, "arguments": {}},
        ]
    }
    assert [(each.name, each.type) for each in queues_in(definitions, None)] == [
        ("a", "stream"),
        ("b", "classic"),
    ]
    assert [each.name for each in queues_in(definitions, "v")] == ["b"]
    assert [each.vhost for each in queues_in({"queues": [{"name": "c"}]}, "v")] == ["v"]
