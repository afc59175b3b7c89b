from __future__ import annotations

from typing import Any

import pytest

from warren.cli import perf as module
from warren.cli.main import main
from warren.client.uri import Uri
from warren.perf.throughput import Plan
from warren.perf.topology import Layout


def parse(words: str) -> dict[str, Any]:
    name, *rest = words.split()
    return module.perf.commands[name].make_context(name, rest).params


def plan_of(options: dict[str, Any]) -> Plan:
    return module.plan_of(
        **{name: value for name, value in options.items() if name not in {"uri", "as_json"}}
    )


def test_the_defaults_of_throughput() -> None:
    arguments = parse("throughput")
    assert arguments["uri"] == Uri("127.0.0.1", 5672, "guest", "guest", "/")
    assert plan_of(arguments) == Plan(ack_every=100, prefetch=1000)


def test_every_option_of_throughput_reaches_the_plan() -> None:
    arguments = parse(
        "throughput --publishers 2 --consumers 3 --queues 4 --size 5 --persistent --confirm 6 --ack-every 7"
        " --prefetch 8 --rate 9 --seconds 1.5 --warmup 0 --exchange e --queue q --durable"
    )
    layout = Layout(queues=4, name="q", exchange="e", durable=True)
    assert plan_of(arguments) == Plan(
        publishers=2, consumers=3, body_bytes=5, persistent=True, window=6, ack_every=7, prefetch=8, rate=9,
        seconds=1.5, warmup_s=0, layout=layout,
    )  # fmt: skip


def test_the_defaults_of_latency() -> None:
    assert plan_of(parse("latency")) == Plan(rate=2000, ack_every=1, prefetch=1000)


def test_latency_may_be_that_of_messages_that_are_confirmed() -> None:
    assert plan_of(parse("latency --confirm 100")).window == 100


def test_auto_ack_needs_no_prefetch() -> None:
    plan = plan_of(parse("throughput --ack-every 0 --prefetch 10"))
    assert (plan.ack_every, plan.prefetch) == (0, 0)


@pytest.mark.parametrize(("prefetch", "ack_every"), [(10, 10), (100, 100), (500, 100), (0, 100)])
def test_acks_keep_up_with_a_small_prefetch(prefetch: int, ack_every: int) -> None:
    assert plan_of(parse(f"throughput --prefetch {prefetch}")).ack_every == ack_every


def test_connections_and_churn_take_what_they_count() -> None:
    assert parse("connections 50 --hold 2.5")["number"] == 50
    assert parse("churn bindings --parallel 3")["of"] == "bindings"


@pytest.mark.parametrize(
    "words",
    [
        "",
        "nonsense",
        "throughput --size -1",
        "throughput --size many",
        "throughput --queues 0",
        "throughput --prefetch 65536",
        "throughput --seconds -1",
        "throughput --seconds nan",
        "throughput --uri amqps://broker?verify=maybe",
        "throughput --uri amqp://broker:port",
        "latency --rate 0",
        "connections",
        "connections 0",
        "churn",
        "churn exchanges",
    ],
)
def test_wrong_arguments_exit_with_2(words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["perf", *words.split()])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "words",
    [
        "throughput --publishers 0 --consumers 0",
        "throughput --ack-every 11 --prefetch 10",
        "latency --size 7",
    ],
)
def test_arguments_that_contradict_each_other_exit_with_2(words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["perf", *words.split()])
    assert ended.value.code == 2
