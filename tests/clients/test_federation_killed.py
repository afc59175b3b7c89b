"""An upstream that is killed and comes back: federation goes on, and nothing that was confirmed is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.compare import free_port

from tests.support.federation import (
    are_running,
    bind,
    bodies_of,
    count_in,
    declare_exchange,
    declare_queue,
    federate,
    named_broker,
    publish,
    set_upstream,
    take_until,
    until,
)
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.slow

ROUNDS, MESSAGES = 3, 200


async def test_links_outlive_the_killing_of_their_upstream(tmp_path: Path) -> None:
    """The queue `all` gets what comes over the exchange; the queue `q` is federated, and is consumed last."""
    port = free_port()
    async with named_broker("down", tmp_path) as down:
        declare_exchange(down, "x")
        bind(down, "x", "all")
        declare_queue(down, "q")
        set_upstream(down, "up", f"amqp://guest:guest@127.0.0.1:{port}")
        federate(down, "^[xq]$", "all")
        bodies: list[bytes] = []
        for number in range(ROUNDS):
            with BrokerProcess(tmp_path / "up", "--port", str(port)) as up:
                await until(lambda: are_running(down, 2))
                new = [f"{number} {each}".encode() for each in range(MESSAGES)]
                bodies += new
                await publish(up.address.url(), "x", "k", *new, delivery_mode=2)
                await publish(up.address.url(), "", "q", *new, delivery_mode=2)
                up.kill()
            await until(lambda: not are_running(down, 2))
        with BrokerProcess(tmp_path / "up", "--port", str(port)):
            await until(lambda: are_running(down, 2) and count_in(down, "all") >= len(bodies))
            for queue in ("all", "q"):
                found = await take_until(down.url, queue, lambda taken: set(bodies_of(taken)) >= set(bodies))
                assert set(bodies_of(found)) == set(bodies)  # some may have come twice
            await down.stop()
