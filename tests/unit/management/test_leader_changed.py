"""A message published over HTTP, whose queue gets another leader before the message is safe."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.machine import Machine
from tests.support.rounds import Rounds
from tests.unit.broker.test_replacing import ELSEWHERE, replace
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties
from warren.broker.access import Access
from warren.broker.client import Origin
from warren.broker.message import Message
from warren.broker.outcome import ON_ITS_WAY
from warren.management.errors import LeaderChanged, answer
from warren.management.publication import Publication


def test_publisher_is_told_when_nobody_can_say_any_more_what_is_safe(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    vhost, user = machine.node.vhosts["/"], machine.node.users["guest"]
    publication = Publication(machine.node, vhost, Access(user, "/"), Origin("http", 0, "guest"))
    rounds = Rounds()
    publication.confirms.note(ON_ITS_WAY, rounds)

    async def publish() -> None:
        waiting = asyncio.ensure_future(publication._made_safe())
        asyncio.get_running_loop().call_soon(rounds.end_term)
        with pytest.raises(LeaderChanged) as caught:
            await waiting
        reported: list[Exception] = []
        assert answer(caught.value, "POST", reported.append).status == 503
        assert reported == []

    asyncio.run(publish())
    machine.stop()
    machine.platter.close()


def test_message_whose_queue_moved_on_the_way_is_no_duplicate_when_it_comes_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    vhost, user = machine.node.vhosts["/"], machine.node.users["guest"]
    client = machine.connect()
    client.send(
        m.ExchangeDeclare(exchange="once", type="fanout", arguments={"x-message-deduplication": True})
    )
    client.send(m.QueueDeclare(queue="q", durable=True, arguments={}))
    machine.run()
    exchange, queue = vhost.exchanges["once"], machine.queues["q"]
    assert exchange.seen is not None
    properties = BasicProperties(headers={"x-deduplication-header": 1}).encode()
    message = Message(exchange.wire_name, b"\0", properties, b"x", False)
    publication = Publication(machine.node, vhost, Access(user, "/"), Origin("http", 0, "guest"))
    steps = publication._enqueuing_once(exchange, message, [queue], [])
    next(steps)
    assert exchange.seen.is_coming(message)
    replace(machine, "q", home=ELSEWHERE)
    assert list(steps) == []
    assert publication.has_moved
    assert not exchange.seen.is_coming(message)
    assert not exchange.seen.has(message, 0)
    machine.stop()
    machine.platter.close()
