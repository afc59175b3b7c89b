"""Shovels over a long distance: late bytes, and connections that are cut."""

from __future__ import annotations

import asyncio

from tests.support.process import Address
from tests.support.proxy import proxy_to
from tests.unit.relay.yard import Yard, taken

BODIES = [b"%d" % number for number in range(3000)]
CUTS = 5
DELAY_SECONDS = 0.02
BETWEEN_CUTS_SECONDS = 0.3


async def test_a_shovel_comes_back_after_each_cut_and_loses_nothing(yard: Yard) -> None:
    source = yard.queue(yard.here)
    target = yard.queue(yard.there)
    await yard.publish(yard.here, source, BODIES)
    host, _, port = yard.there.address.rpartition(":")
    async with proxy_to(Address(host, int(port)), delay_seconds=DELAY_SECONDS) as wan:
        yard.shovel(
            src_uri="amqp://",
            src_queue="q",
            dest_uri=wan.address.url(),
            dest_queue="q",
            src_prefetch_count=50,
            reconnect_delay=0.05,
        )
        for _ in range(CUTS):
            before = target.length()
            await yard.until(lambda before=before: target.length() > before)  # type: ignore[misc]
            await asyncio.sleep(BETWEEN_CUTS_SECONDS)
            wan.cut()
        await yard.until(lambda: source.length() == source.unacked == 0)
        got = [message.body for message in taken(target)]
        assert list(dict.fromkeys(got)) == BODIES
        assert len(got) - len(BODIES) <= CUTS * 50  # what was on its way at a cut comes again
        await yard.here.stop()
