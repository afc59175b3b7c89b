"""The order of lists, if the request names none. `tests/clients/test_order_of_rabbitmq.py` compares it with
RabbitMQ's.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.http_api import Api
from warren import commands
from warren.management import order
from warren.management.order import QueueOrder, in_order, names_in_order

NAMES = ["z", "Z", "a", "10", "9", "_", "é"]


async def names(api: Api, path: str) -> list[str]:
    return [row["name"] for row in (await api.get(path)).json]


async def test_queues_go_by_vhost_and_name(api: Api) -> None:
    for vhost in ("vb", "va"):
        api.broker.execute(commands.AddVhost(name=vhost))
        for name in NAMES:
            api.broker.execute(commands.DeclareQueue(vhost=vhost, name=name))
    found = (await api.get("/api/queues")).json
    expected = [(vhost, name) for vhost in ("va", "vb") for name in sorted(NAMES)]
    assert [(row["vhost"], row["name"]) for row in found] == expected
    page = (await api.get("/api/queues?page=2&page_size=5")).json["items"]
    assert [(row["vhost"], row["name"]) for row in page] == expected[5:10]
    assert await names(api, "/api/queues/detailed") == [name for _vhost, name in expected]


async def test_queues_that_come_and_go_change_the_order(api: Api) -> None:
    for name in ("c", "a"):
        api.declare(name)
    assert await names(api, "/api/queues") == ["a", "c"]
    api.declare("b")
    assert await names(api, "/api/queues") == ["a", "b", "c"]
    await api.delete("/api/queues/%2F/a")
    assert await names(api, "/api/queues") == ["b", "c"]


async def test_order_of_queues_is_remembered_until_one_comes_or_goes(api: Api) -> None:
    known = QueueOrder(api.broker.node.vhosts)
    api.declare("b")
    before = await known.names_of(api.vhost)
    assert await known.names_of(api.vhost) is before
    api.declare("a")
    assert (before, await known.names_of(api.vhost)) == (["b"], ["a", "b"])


async def test_order_of_a_deleted_vhost_is_forgotten(api: Api) -> None:
    """Also if a vhost of the same name is made, with a queue as the first had."""
    known = QueueOrder(api.broker.node.vhosts)
    for name in ("a", "b"):
        api.broker.execute(commands.AddVhost(name="v"))
        api.broker.execute(commands.DeclareQueue(vhost="v", name=name))
        assert await known.names_of(api.broker.node.vhosts["v"]) == [name]
        api.broker.execute(commands.DeleteVhost(name="v"))
    api.declare("q")
    await known.names_of(api.vhost)
    assert known.known.keys() == {"/"}


async def test_queues_that_went_meanwhile_are_left_out(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.declare(name)
    queues = await QueueOrder(api.broker.node.vhosts).of([api.vhost])
    api.broker.execute(commands.DeleteQueue(vhost="/", name="b"))
    assert [queue.name for queue in queues] == ["a", "c"]
    assert [queue.name for queue in queues[1:]] == ["c"]
    assert [queue.name for queue in queues[::-1]] == ["c", "a"]
    assert [queue.name for queue in queues[::-1][1:]] == ["a"]
    assert [queue.name for queue in queues[::2]] == ["a"]
    assert queues[1].name == "c"


async def test_parts_of_queues_of_several_vhosts(api: Api) -> None:
    for vhost in ("va", "vb", "vc"):
        api.broker.execute(commands.AddVhost(name=vhost))
        for name in ("1", "2"):
            api.broker.execute(commands.DeclareQueue(vhost=vhost, name=vhost + name))
    node = api.broker.node
    queues = await QueueOrder(node.vhosts).of([node.vhosts[name] for name in ("va", "vb", "vc")])
    every = ["va1", "va2", "vb1", "vb2", "vc1", "vc2"]
    assert len(queues) == 6
    for first in range(7):
        for last in range(first, 7):
            assert [queue.name for queue in queues[first:last]] == every[first:last]
            assert [queue.name for queue in queues[::-1][first:last]] == every[::-1][first:last]


async def test_what_is_equal_in_the_sorted_column_goes_by_name(api: Api) -> None:
    for name in ("b", "c", "a"):
        api.declare(name)
    assert await names(api, "/api/queues?sort=messages") == ["a", "b", "c"]
    assert await names(api, "/api/queues?sort=messages&sort_reverse=true") == ["c", "b", "a"]
    assert await names(api, "/api/queues?sort_reverse=true") == ["c", "b", "a"]


@pytest.mark.parametrize("length", [0, 1, 249, 250, 251, 1000])
@pytest.mark.parametrize("most", [None, 0, 1, 300])
@pytest.mark.parametrize("reverse", [False, True])
async def test_items_are_sorted_and_equal_ones_stay_as_they_were(
    length: int, most: int | None, reverse: bool
) -> None:
    chance = random.Random(length)
    items = [(chance.randrange(10), number) for number in range(length)]
    found = await in_order(items, lambda item: item[0], reverse=reverse, most=most)
    assert found == sorted(items, key=lambda item: item[0], reverse=reverse)[:most]


@pytest.mark.parametrize("merged_at_once", [50_000, 10])
async def test_very_many_names_are_sorted_over_several_turns(
    monkeypatch: pytest.MonkeyPatch, merged_at_once: int
) -> None:
    monkeypatch.setattr(order, "NAMES_SORTED_AT_ONCE_MAX", 10)
    monkeypatch.setattr(order, "NAMES_MERGED_AT_ONCE_MAX", merged_at_once)
    given = [f"n{number}" for number in range(105)]
    work = asyncio.create_task(names_in_order(given))
    turns = 0
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    assert await work == sorted(given)
    assert turns >= len(given) // 10


async def test_lists_of_what_operators_define_go_by_name(api: Api) -> None:
    for name, priority in (("b", 1), ("a", 1), ("z", 0)):
        policy = {"pattern": "^none", "definition": {"expires": 1000}, "priority": priority}
        made = {
            f"policies/%2F/{name}": policy,
            f"global-parameters/{name}": {"value": 1},
            f"exchanges/%2F/{name}": {"type": "fanout"},
            f"users/{name}": {"password_hash": "", "tags": ""},
        }
        for path, value in made.items():
            assert (await api.put(f"/api/{path}", value)).status == 201
    assert await names(api, "/api/policies") == ["z", "a", "b"]
    for path in ("/api/global-parameters", "/api/exchanges/%2F", "/api/users", "/api/vhosts"):
        found = await names(api, path)
        assert found == sorted(found)
