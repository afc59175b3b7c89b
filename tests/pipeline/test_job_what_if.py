"""what-if on Spark's workers gives what the broker's exchanges say, message by message."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pika
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.messages import Message, message, table
from tests.support.process import BrokerProcess
from warren.pipeline.errors import UsageError
from warren.pipeline.jobs.routing import Routes
from warren.pipeline.jobs.what_if import (
    differences,
    outcomes,
    per_message,
    per_queue,
    read_topology,
    routed,
)

TOPOLOGY = json.dumps({
    "exchanges": [{"name": "shop", "type": "topic"}, {"name": "by-kind", "type": "headers"}],
    "queues": [{"name": "orders"}, {"name": "mail"}, {"name": "all"}],
    "bindings": [
        {"source": "shop", "destination": "orders", "routing_key": "order.new"},
        {"source": "shop", "destination": "mail", "routing_key": "*.paid"},
        {"source": "shop", "destination": "by-kind", "destination_type": "exchange", "routing_key": "#"},
        {"source": "by-kind", "destination": "all", "arguments": {"kind": "vip"}},
    ],
})  # fmt: skip


def some_messages(seed: int, count: int) -> list[Message]:
    """Messages with ids, each in one to three queues; some name an exchange that the topology lacks."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        fields = {
            "exchange": chance.choice(["shop", "shop", "shop", "", "gone"]),
            "routing_key": chance.choice(["order.new", "order.paid", "mail", "nowhere"]),
            "headers": chance.choice([None, {"kind": "vip"}, {"kind": "usual"}]),
            "message_id": f"m{number}",
        }
        queues = chance.sample(["orders", "mail", "all"], chance.randrange(1, 4))
        found += [message(queue, number, **fields) for queue in queues]
    return found


def plain_routes(messages: list[Message]) -> dict[str, tuple[list[str] | None, list[str]]]:
    routes, did = Routes(TOPOLOGY, name="test"), Counter[tuple[str, str]]()
    would = {}
    for m in messages:
        did[m["message_id"], m["queue"]] += 1
        would[m["message_id"]] = routes.route("/", m["exchange"], m["routing_key"], m["headers"])
    return {key: (queues, sorted(q for k, q in did if k == key)) for key, queues in would.items()}


def test_every_message_goes_where_the_brokers_exchanges_say(spark: SparkSession) -> None:
    messages = some_messages(1, 200)
    wanted = plain_routes(messages)
    ways = per_message(routed(table(spark, messages), TOPOLOGY)).persist()
    found = {row["identity"]: (row["would"], row["did"]) for row in ways.collect()}
    assert found == wanted
    numbers = {row["queue"]: tuple(row)[2:] for row in per_queue(ways).collect()}
    for queue in ("orders", "mail", "all"):
        pairs = [(queue in did, queue in (would or [])) for would, did in wanted.values()]
        counts = [sum(a for a, _ in pairs), sum(b for _, b in pairs)]
        moves = [pairs.count(pair) for pair in ((True, True), (True, False), (False, True))]
        assert numbers[queue] == (*counts, *moves)
    changed = sum(sorted(would or []) != did for would, did in wanted.values())
    assert sum(row["messages"] for row in differences(ways).collect()) == changed
    told = dict(map(tuple, outcomes(ways).collect()))
    assert told["no such exchange"] == sum(would is None for would, _ in wanted.values())
    assert told["to no queue"] == sum(would == [] for would, _ in wanted.values())
    ways.unpersist()


def test_two_topologies_are_compared_over_one_recording(spark: SparkSession) -> None:
    """The recording is a stream that gets every message; that the stream itself got them is not compared."""
    before = json.dumps({
        "exchanges": [{"name": "shop", "type": "fanout"}],
        "queues": [{"name": "orders"}],
        "bindings": [{"source": "shop", "destination": "orders"}],
    })  # fmt: skip
    messages = [
        message("everything", n, routing_key=key) for n, key in enumerate(["order.new", "x.paid", "y"])
    ]
    ways = per_message(routed(table(spark, messages), TOPOLOGY, before))
    found = {row["queue"]: tuple(row)[2:] for row in per_queue(ways).collect()}
    assert found == {"orders": (3, 1, 1, 2, 0), "mail": (0, 1, 0, 0, 1)}


def test_topology_is_taken_from_a_broker_or_a_file_of_one_vhost(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.address.url())) as connection:
            channel = connection.channel()
            channel.exchange_declare("shop", "topic", durable=True)
            channel.queue_declare("orders", durable=True)
            channel.queue_bind("orders", "shop", "order.#")
        user = ("guest", "guest")
        text = read_topology(broker.http_url, "--topology", vhost="/", user=user)
        named = broker.http_url.replace("://", "://guest:wrong@")
        with pytest.raises(UsageError, match=r"--against: .* does not let user 'guest' in"):
            read_topology(named, "--against", vhost="/", user=user)
    assert Routes(text, name="it").route("/", "shop", "order.new") == ["orders"]
    exported = {**json.loads(text), "vhosts": []}
    for kind in ("queues", "exchanges", "bindings"):
        for item in exported[kind]:
            del item["vhost"]
    (tmp_path / "file.json").write_text(json.dumps(exported))
    text = read_topology(str(tmp_path / "file.json"), "--topology", vhost="shop", user=user)
    assert Routes(text, name="it").route("shop", "shop", "order.new") == ["orders"]


def test_broker_that_does_not_answer_is_named_with_the_option() -> None:
    with pytest.raises(UsageError, match=r"--topology: no broker answers at http://127\.0\.0\.1:1"):
        read_topology("http://127.0.0.1:1", "--topology", vhost="/", user=("guest", "guest"))
