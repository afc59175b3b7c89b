"""Brokers that go away while messages are moved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.unit.moving.gate import Gate
from tests.unit.moving.pair import Pair, bodies, declare, messages_in, publish, uri_of
from warren.broker.message import Message
from warren.cli.main import main
from warren.client.errors import ClientError, ClosedByBrokerError, OutageError
from warren.moving import outage
from warren.moving.outage import GivenUp, Patience, is_outage
from warren.moving.outlet import Outlet, Published
from warren.pipeline.publisher import PublishError


@pytest.fixture(params=["there", "here"])
def gate(pair: Pair, request: pytest.FixtureRequest) -> Iterator[tuple[Gate, str]]:
    """The way to one of the brokers over AMQP, and the option that names it."""
    is_there = request.param == "there"
    with Gate(uri_of(pair.there if is_there else pair.here)) as gate:
        uri = f"amqp://guest:guest@127.0.0.1:{gate.uri.port}"
        yield gate, f"--amqp={uri}" if is_there else f"--to-amqp={uri}"


def shut_at_second_batch(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_batch = Outlet.publish
    batches: list[int] = []

    def shut_first(self: Outlet, messages: Sequence[Message], queue: str) -> Published:
        batches.append(len(messages))
        if len(batches) == 2:
            gate.shut()
        return publish_batch(self, messages, queue)

    monkeypatch.setattr(Outlet, "publish", shut_first)


def run(pair: Pair, option: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, int], str]:
    """The exit code, how many messages were moved from each queue, and the error."""
    urls = [broker.http_url.replace("://", "://guest:guest@") for broker in pair]
    words = ["--url", urls[0], "--to", urls[1], "--no-definitions", "--json", "--batch=10", option]
    code = main(["import", "rabbitmq", *words])
    out, err = capsys.readouterr()
    return code, {row["queue"]: row["moved"] for row in json.loads(out)}, err


def test_broker_that_comes_back_is_waited_for(
    pair: Pair,
    queue: str,
    gate: tuple[Gate, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    way, option = gate
    publish(pair.there, queue, bodies(50))
    shut_at_second_batch(way, monkeypatch)
    monkeypatch.setattr("warren.moving.outage.time.sleep", after(way.open))
    code, moved, err = run(pair, option, capsys)
    assert (code, moved[queue], err) == (0, 50, "")
    found = [int(got.body) for got in messages_in(pair.here, queue)]
    assert list(dict.fromkeys(found)) == list(range(50))
    assert len(found) <= 60


def after(work: Callable[[], None]) -> Callable[[float], None]:
    """A sleep in which something happens, the first time."""
    done: list[float] = []

    def sleep(seconds: float) -> None:
        if not done:
            work()
        done.append(seconds)

    return sleep


def test_broker_that_does_not_come_back_is_exit_3_with_the_table_so_far(
    pair: Pair,
    queue: str,
    gate: tuple[Gate, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    way, option = gate
    last = f"{queue}-last"
    for broker in pair:
        declare(broker, last)
    for name in (queue, last):
        publish(pair.there, name, bodies(50))
    shut_at_second_batch(way, monkeypatch)
    monkeypatch.setattr(outage, "OUTAGE_SECONDS_MAX", 0.0)
    code, moved, err = run(pair, option, capsys)
    assert (code, moved[last]) == (3, 0)
    assert 0 < moved[queue] <= 10
    assert err.endswith("run the command again when it is back: it goes on where it was\n")
    monkeypatch.undo()
    messages_in(pair.there, queue)
    messages_in(pair.there, last)


def published_with(cause: Exception) -> PublishError:
    error = PublishError("x", confirmed=0, sent=0)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OutageError("x"), True),
        (ClientError("x"), False),
        (ClosedByBrokerError("connection", 320, "CONNECTION_FORCED"), True),
        (ClosedByBrokerError("connection", 530, "NOT_ALLOWED"), False),
        (published_with(OutageError("x")), True),
        (published_with(ClosedByBrokerError("channel", 404, "NOT_FOUND")), False),
        (PublishError("x", confirmed=0, sent=0), False),
    ],
    ids=str,
)
def test_outages_are_told_from_refusals(error: Exception, expected: bool) -> None:
    assert is_outage(error) == expected


def test_patience_begins_anew_when_the_broker_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("warren.moving.outage.time.monotonic", lambda: now[0])
    monkeypatch.setattr("warren.moving.outage.time.sleep", lambda _seconds: None)
    patience = Patience(lambda _line: None)
    patience.wait("gone")
    now[0] = outage.OUTAGE_SECONDS_MAX
    patience.reset()
    patience.wait("gone")
    now[0] *= 2
    with pytest.raises(GivenUp, match="gone; run the command again"):
        patience.wait("gone")
