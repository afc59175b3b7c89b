"""`warren perf` as people run it: a process of its own against a broker."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.support.process import Address

RUN_SECONDS_MAX = 60
COMMAND = [sys.executable, "-m", "warren", "perf"]


def perf(broker: Address, words: str, *, uri: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *words.split(), "--uri", uri or broker.url()]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)


def measured(broker: Address, words: str) -> dict[str, Any]:
    """The JSON object of a run that must succeed; there may be nothing else on standard output."""
    done = perf(broker, f"{words} --json")
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def queue_exists(broker: Address, name: str) -> bool:
    with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
        try:
            connection.channel().queue_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code != 404:
                raise
            return False
        return True


def test_stream_is_filled_and_read_by_each_reader(broker: Address) -> None:
    result = measured(broker, "stream --messages 5000 --readers 2 --size 100")
    assert (result["messages"], result["readers"]) == (5000, 2)
    assert result["confirm_per_s"] > 0
    assert result["read_per_s"] > 0


@pytest.mark.parametrize(
    "words",
    [
        "--ack-every 0",
        "--ack-every 1 --prefetch 10",
        "--size 0",
        "--size 300000 --rate 50",
        "--publishers 3 --consumers 2 --queues 2",
        "--exchange amq.topic --durable --persistent",
        "--rate 500",
    ],
)
def test_throughput_publishes_and_consumes(broker: Address, words: str) -> None:
    result = measured(broker, f"throughput --seconds 0.3 --warmup 0 {words}")
    assert result["published"] > 0
    assert result["consumed"] > 0
    assert result["confirmed"] == 0


def test_confirms_are_counted_and_keep_to_the_window(broker: Address) -> None:
    words = "throughput --seconds 0.3 --warmup 0 --durable --persistent --confirm 20 --consumers 0"
    result = measured(broker, words)
    assert result["confirmed"] > 0
    assert 0 <= result["published"] - result["confirmed"] <= 20
    assert result["nacked"] == 0


def test_a_rate_is_not_exceeded(broker: Address) -> None:
    result = measured(broker, "throughput --seconds 0.3 --warmup 0 --rate 100 --publishers 2")
    assert result["published"] <= 100 * result["seconds"] + 2


def test_latency_gives_percentiles_in_order(broker: Address) -> None:
    latency = measured(broker, "latency --seconds 0.3 --warmup 0 --rate 200")["latency_us"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]


def test_connections_are_opened_and_held(broker: Address) -> None:
    result = measured(broker, "connections 20 --hold 0.5")
    assert (result["opened"], result["failed"], result["lost"]) == (20, 0, 0)


@pytest.mark.parametrize("of", ["connections", "channels", "queues", "bindings"])
def test_churn_makes_and_unmakes(broker: Address, of: str) -> None:
    assert measured(broker, f"churn {of} --seconds 0.3 --parallel 2")["operations"] > 0


def test_without_json_there_is_a_table(broker: Address) -> None:
    done = perf(broker, "churn channels --seconds 0.3")
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == [
        "channels made and unmade",
        "rate",
        "measured for",
    ]


def test_a_queue_the_run_made_is_deleted(broker: Address, name: str) -> None:
    assert measured(broker, f"throughput --seconds 0.3 --warmup 0 --queue {name}")["consumed"] > 0
    assert not queue_exists(broker, name)


def test_a_queue_that_was_there_is_left_alone(broker: Address, name: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url())) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        measured(broker, f"throughput --seconds 0.3 --warmup 0 --queue {name}")
        assert queue_exists(broker, name)
        channel.queue_delete(name)


def test_ctrl_c_ends_with_the_results_so_far_and_deletes_the_queue(broker: Address, name: str) -> None:
    ours, theirs = pty.openpty()
    words = f"throughput --seconds 600 --warmup 0 --queue {name} --uri {broker.url()}"
    with subprocess.Popen([*COMMAND, *words.split()], stdout=theirs) as process:
        os.close(theirs)
        screen = os.read(ours, 1)  # the live line has begun, so the run goes on
        process.send_signal(signal.SIGINT)
        while piece := read_terminal(ours):
            screen += piece
        assert process.wait(RUN_SECONDS_MAX) == 0
    os.close(ours)
    last_line = screen.decode().strip().splitlines()[-1]
    assert last_line.startswith("measured for")
    assert not queue_exists(broker, name)


def read_terminal(descriptor: int) -> bytes:
    """Linux says EIO where the other end of a terminal is gone."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""


def test_a_refused_login_is_one_line_and_exit_code_1(broker: Address) -> None:
    done = perf(broker, "throughput", uri=f"amqp://guest:wrong@{broker.host}:{broker.port}/")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("warren perf: the broker closed the connection: 403 ACCESS_REFUSED")
    assert done.stderr.count("\n") == 1


def test_a_missing_exchange_is_one_line_and_exit_code_1(broker: Address, name: str) -> None:
    done = perf(broker, f"throughput --seconds 0.3 --exchange {name} --queue {name}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("warren perf: the broker closed the channel: 404 NOT_FOUND")
    assert not queue_exists(broker, name)


def test_no_broker_is_one_line_and_exit_code_1(broker: Address) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        done = perf(broker, "latency --json", uri=f"amqp://127.0.0.1:{port}/")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"warren perf: cannot connect to 127.0.0.1:{port}: Connection refused\n"


def test_failed_connections_are_counted_and_exit_code_is_1(broker: Address) -> None:
    uri = f"amqp://guest:guest@{broker.host}:{broker.port}/no-such-vhost"
    done = perf(broker, "connections 3 --json", uri=uri)
    assert (done.returncode, json.loads(done.stdout)["failed"]) == (1, 3)


def test_wrong_arguments_exit_with_2(broker: Address) -> None:
    assert perf(broker, "throughput --size wrong").returncode == 2
