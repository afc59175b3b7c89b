"""How fast relays carry messages between two brokers: two of ours, and two RabbitMQs with their plugins.

    shovel      A queue is filled. Then a shovel, which runs in the source's broker, carries the messages to a
                durable queue of the other broker.
    exchange    An exchange is federated. Messages are published, with confirms, to the exchange upstream, as
                fast as the broker takes them; a durable queue bound to the federated exchange gets them.
    queue       A queue is filled. Then the queue of the same name at the other broker is federated with it,
                and a consumer there takes the messages.

All messages are persistent, all relays work with ack-mode on-confirm and a prefetch of 1,000. The figure is
messages a second, from the request that begins it, or the first publish, until all have arrived. RabbitMQ
takes part if Debian's package rabbitmq-server is installed. The two kinds take turns, and a figure is the
median of the rounds.

With --delay-ms, two brokers of ours are far apart: whatever goes from one to the other arrives so much later,
both ways. With a prefetch of 1,000 no more than 1,000 messages can be on their way and back; printed is which
share of that the shovel reaches.

    python -m benchmarks.relays                  three rounds of 500,000 messages, fewer for RabbitMQ
    python -m benchmarks.relays --only exchange,queue
    python -m benchmarks.relays --delay-ms 50
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.compare import (
    RABBITMQ,
    WARREN,
    free_port,
    names_of,
    rabbitmq_environment,
    running,
    stop_port_mapper,
)
from tests.support.process import Address
from tests.support.proxy import proxy_to

from warren.amqp.methods import BasicPublish, QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk
from warren.amqp.properties import BasicProperties
from warren.client.connection import ClientConnection
from warren.client.dialogue import ask
from warren.client.uri import parse_uri
from warren.perf.consumer import LoadConsumer
from warren.perf.loop import TURN_SECONDS_MAX, Loop
from warren.perf.scanner import Histogram
from warren.pipeline.publisher import ConfirmingPublisher, OutgoingMessage

PRODUCT = "relays benchmark"
LOGIN = {"Authorization": "Basic " + b64encode(b"guest:guest").decode(), "Content-Type": "application/json"}
RABBITMQ_SHARE = 0.1  # RabbitMQ is slower: it gets this share of the messages
START_SECONDS_MAX = 120
LOOK_SECONDS = 0.02
QUEUE = EXCHANGE = "relayed"
PLUGINS = (
    "rabbitmq_management",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
    "rabbitmq_federation",
    "rabbitmq_federation_management",
)
ACK_EVERY = 100  # of the consumer of a federated queue
PREFETCH = 1000
FAR_SECONDS = 10  # about how long a shovel between brokers that are far apart is watched


@dataclass(frozen=True)
class Node:
    """Where a broker listens."""

    amqp: str
    http: str


@contextlib.contextmanager
def our_node(directory: Path) -> Iterator[Node]:
    config = directory / "warren.toml"
    config.write_text(f'cluster_name = "{directory.name}"\n')  # brokers that are federated have names
    command = [
        *WARREN,
        "serve",
        f"--config={config}",
        "--port=0",
        "--http-port=0",
        f"--data-dir={directory}/data",
        "--log-level=error",
    ]
    with running(command, dict(os.environ), directory / "log", subprocess.PIPE) as process:
        assert process.stdout is not None
        told = dict(word.partition("=")[::2] for word in process.stdout.readline().split()[1:])
        yield Node(f"amqp://guest:guest@{told['amqp']}", f"http://{told['http']}")


@contextlib.contextmanager
def rabbitmq_node(directory: Path) -> Iterator[Node]:
    port, http_port, env = free_port(), free_port(), rabbitmq_environment(directory)
    (directory / "plugins").write_text(f"[{','.join(PLUGINS)}].")
    config = directory / "rabbitmq.conf"
    config.write_text(f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {http_port}\n")
    env |= {
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODENAME": f"relays{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(config),
    }
    with contextlib.ExitStack() as stack:
        stack.callback(stop_port_mapper, env)
        stack.enter_context(running([str(RABBITMQ)], env, directory / "errors"))
        node = Node(f"amqp://guest:guest@127.0.0.1:{port}", f"http://127.0.0.1:{http_port}")
        wait_until(lambda: answers(node), START_SECONDS_MAX)
        yield node


def answers(node: Node) -> bool:
    try:
        request(node, "GET", "/api/shovels")
    except OSError:
        return False
    return True


def wait_until(is_so: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"nothing came of it in {seconds} s"
        time.sleep(LOOK_SECONDS)


def request(node: Node, method: str, path: str, value: object = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    asked = urllib.request.Request(node.http + path, data=body, headers=LOGIN, method=method)  # noqa: S310
    with urllib.request.urlopen(asked) as answer:  # noqa: S310 - our own brokers
        content = answer.read()
    return json.loads(content) if content else None


def declare_anew(node: Node) -> None:
    with ClientConnection(parse_uri(node.amqp), product=PRODUCT) as connection:
        connection.talk(ask(QueueDelete(queue=QUEUE), QueueDeleteOk))
        connection.talk(ask(QueueDeclare(queue=QUEUE, durable=True, arguments={}), QueueDeclareOk))


def fill(node: Node, messages: int, size: int) -> None:
    declare_anew(node)
    publish(node, "", messages, size)


def publish(node: Node, exchange: str, messages: int, size: int) -> None:
    """Publish persistent messages, and wait for all confirms."""
    method = BasicPublish(exchange=exchange, routing_key=QUEUE).encode()
    properties = BasicProperties(delivery_mode=2).encode()
    message = OutgoingMessage(method, properties, b"x" * size, exchange, QUEUE, "")
    with ConfirmingPublisher(parse_uri(node.amqp), on_failure=lambda _: None, product=PRODUCT) as publisher:
        for _ in range(messages):
            publisher.publish(message)


def wait_for(node: Node, messages: int) -> None:
    """Wait until so many messages are in the queue."""
    with ClientConnection(parse_uri(node.amqp), product=PRODUCT) as connection:
        declare = QueueDeclare(queue=QUEUE, passive=True, arguments={})
        wait_until(
            lambda: connection.talk(ask(declare, QueueDeclareOk)).message_count >= messages,
            messages / 100 + 60,
        )


def carry(source: Node, destination: Node, messages: int, size: int, way: str = "") -> float:
    """Messages a second, to the destination by a URI of its own, or by this one."""
    declare_anew(destination)
    fill(source, messages, size)
    shovel = {
        "src-uri": source.amqp,
        "src-queue": QUEUE,
        "dest-uri": way or destination.amqp,
        "dest-queue": QUEUE,
        "ack-mode": "on-confirm",
        "src-prefetch-count": PREFETCH,
    }
    started = time.perf_counter()
    request(source, "PUT", "/api/parameters/shovel/%2F/carried", {"value": shovel})
    wait_for(destination, messages)
    rate = messages / (time.perf_counter() - started)
    request(source, "DELETE", "/api/parameters/shovel/%2F/carried")
    return rate


# --- federation ---


@contextlib.contextmanager
def upstream(source: Node, destination: Node) -> Iterator[None]:
    """While this is entered, the source is an upstream of the destination."""
    value = {"uri": source.amqp, "ack-mode": "on-confirm", "prefetch-count": PREFETCH, "reconnect-delay": 1}
    path = "/api/parameters/federation-upstream/%2F/up"
    request(destination, "PUT", path, {"value": value})
    try:
        yield
    finally:
        request(destination, "DELETE", path)


def federate(node: Node, apply_to: str) -> None:
    definition = {"federation-upstream": "up"}
    policy = {"pattern": f"^{QUEUE}$", "definition": definition, "apply-to": apply_to}
    request(node, "PUT", "/api/policies/%2F/federated", policy)


def is_linked(node: Node) -> bool:
    links = request(node, "GET", "/api/federation-links")
    return [link["status"] for link in links] == ["running"]


def end_federation(node: Node) -> None:
    """RabbitMQ lists links for some time that are gone."""
    request(node, "DELETE", "/api/policies/%2F/federated")
    wait_until(lambda: not request(node, "GET", "/api/federation-links"), START_SECONDS_MAX)


def federate_exchange(source: Node, destination: Node, messages: int, size: int) -> float:
    declare_anew(destination)
    request(destination, "PUT", f"/api/exchanges/%2F/{EXCHANGE}", {"type": "fanout", "durable": True})
    request(destination, "POST", f"/api/bindings/%2F/e/{EXCHANGE}/q/{QUEUE}", {"routing_key": ""})
    with upstream(source, destination):
        federate(destination, "exchanges")
        wait_until(lambda: is_linked(destination), START_SECONDS_MAX)
        started = time.perf_counter()
        publish(source, EXCHANGE, messages, size)
        wait_for(destination, messages)
        rate = messages / (time.perf_counter() - started)
        end_federation(destination)
    return rate


def federate_queue(source: Node, destination: Node, messages: int, size: int) -> float:
    declare_anew(destination)
    fill(source, messages, size)
    with upstream(source, destination), Loop() as loop:
        consumer = LoadConsumer(
            loop,
            parse_uri(destination.amqp),
            QUEUE,
            Histogram(),
            ack_every=ACK_EVERY,
            prefetch=PREFETCH,
        )
        started = time.perf_counter()
        federate(destination, "queues")
        deadline = started + messages / 100 + 60
        while consumer.link.scanner.deliveries < messages:
            assert time.perf_counter() < deadline, "the link carries no more"
            loop.turn(TURN_SECONDS_MAX)
            if loop.errors:
                raise loop.errors[0]
        rate = messages / (time.perf_counter() - started)
        end_federation(destination)
    return rate


# --- far apart ---


@contextlib.contextmanager
def far_away(node: Node, delay_seconds: float) -> Iterator[str]:
    """A URI of the node, by which it is far away."""
    uri, found = parse_uri(node.amqp), Future[str]()
    loop, stopped = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with proxy_to(Address(uri.host, uri.port), delay_seconds=delay_seconds) as proxy:
            found.set_result(proxy.address.url())
            await stopped.wait()
            proxy.cut()
            await asyncio.sleep(3 * delay_seconds)  # until its connections have ended

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        thread = threading.Thread(target=runner.run, args=(serve(),))
        thread.start()
        yield found.result()
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


def measure_far(asked: argparse.Namespace) -> None:
    delay_seconds = asked.delay_ms / 1000
    allowed = PREFETCH / (2 * delay_seconds)
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relays-")))
        nodes = []
        for name in ("source", "destination"):
            (work / name).mkdir()
            nodes.append(stack.enter_context(our_node(work / name)))
        way = stack.enter_context(far_away(nodes[1], delay_seconds))
        messages = int(allowed * FAR_SECONDS)
        rates = [carry(nodes[0], nodes[1], messages, asked.size, way) for _ in range(asked.rounds)]
    rate = statistics.median(rates)
    print(f"{rate:,.0f} messages/s, {rate / allowed:.0%} of the {allowed:,.0f} that the window allows")


KINDS: dict[str, Callable[[Path], AbstractContextManager[Node]]] = {
    "WarrenMQ": our_node,
    "RabbitMQ": rabbitmq_node,
}
RELAYS: dict[str, Callable[[Node, Node, int, int], float]] = {
    "shovel": carry,
    "exchange": federate_exchange,
    "queue": federate_queue,
}


def measure(asked: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relays-")))
        pairs: dict[str, list[Node]] = {}
        for kind, start in KINDS.items():
            if kind == "RabbitMQ" and not RABBITMQ.exists():
                continue
            for number in range(2):
                directory = work / f"{kind}-{number}"
                directory.mkdir()
                pairs.setdefault(kind, []).append(stack.enter_context(start(directory)))
        print(f"{'messages/s':<12}" + "".join(f"{kind:>12}" for kind in pairs), flush=True)
        for relay in asked.only:
            rates: dict[str, list[float]] = {kind: [] for kind in pairs}
            for _ in range(asked.rounds):
                for kind, (source, destination) in pairs.items():
                    share = RABBITMQ_SHARE if kind == "RabbitMQ" else 1
                    messages = int(asked.messages * share)
                    rates[kind].append(RELAYS[relay](source, destination, messages, asked.size))
            print(line(relay, {kind: statistics.median(each) for kind, each in rates.items()}), flush=True)


def line(relay: str, medians: dict[str, float]) -> str:
    cells = "".join(f"{rate:>12,.0f}" for rate in medians.values())
    ratio = f"{medians['WarrenMQ'] / medians['RabbitMQ']:>9.1f}x" if len(medians) > 1 else ""
    return f"{relay:<12}{cells}{ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--messages", type=int, default=500_000)
    add("--size", type=int, default=100, help="of each body, in bytes")
    add("--rounds", type=int, default=3)
    add("--only", type=names_of(list(RELAYS)), default=list(RELAYS), metavar="NAME,…", help="these relays")
    add("--delay-ms", type=float, help="how far apart two brokers of ours are")
    asked = parser.parse_args()
    if asked.delay_ms:
        measure_far(asked)
    else:
        measure(asked)


if __name__ == "__main__":
    main()
