"""Lists: pages, filters, sorting and columns, as RabbitMQ's API has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http_api import Api
from warren.management.json_text import ROWS_A_TURN

COUNT = ROWS_A_TURN + 50


@pytest.fixture
def queues(api: Api) -> list[str]:
    names = [f"q{number:04}" for number in range(COUNT)]
    for name in names:
        api.declare(name, max_length=int(name[1:]) + 1)
    return names


async def get(api: Api, query: str) -> Any:
    answer = await api.get(f"/api/queues{query}")
    assert answer.status == 200, answer.body
    return answer.json


async def names_of(api: Api, query: str) -> list[str]:
    return [row["name"] for row in await get(api, query)]


async def test_without_a_page_all_come_as_a_list(api: Api, queues: list[str]) -> None:
    assert await names_of(api, "") == queues


async def test_a_page_tells_how_many_there_are(api: Api, queues: list[str]) -> None:
    page = await get(api, "?page=3&page_size=100")
    assert [row["name"] for row in page.pop("items")] == queues[200:250]
    assert page == {
        "page": 3,
        "page_count": 3,
        "page_size": 100,
        "item_count": 50,
        "filtered_count": COUNT,
        "total_count": COUNT,
    }


async def test_a_list_without_items_has_one_empty_page(api: Api) -> None:
    page = await get(api, "?page=1")
    assert (page["items"], page["page_count"], page["page_size"]) == ([], 1, 100)


async def test_a_page_behind_the_last_is_400(api: Api) -> None:
    answer = await api.get("/api/queues?page=2&page_size=10")
    assert answer.status == 400
    assert answer.json == {
        "error": "page_out_of_range",
        "reason": "page out of range, page: 2 page size: 10, len: 0",
    }


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("?sort=name&sort_reverse=true", f"q{COUNT - 1:04}"),
        ("?sort=arguments.x-max-length&sort_reverse=true", f"q{COUNT - 1:04}"),
        ("?sort=arguments.x-max-length", "q0000"),
        ("?sort=absent", "q0000"),
        ("?sort_reverse=true", f"q{COUNT - 1:04}"),
    ],
)
async def test_lists_are_sorted(api: Api, queues: list[str], query: str, first: str) -> None:
    found = await names_of(api, query)
    assert found[0] == first
    assert sorted(found) == queues
    page = await get(api, query + "&page=1&page_size=3")
    assert [row["name"] for row in page["items"]] == found[:3]


async def test_names_are_filtered_by_a_part_or_an_expression(api: Api, queues: list[str]) -> None:
    assert await names_of(api, "?name=q000") == queues[:10]
    assert await names_of(api, "?name=%5Eq00.5%24&use_regex=true") == [
        q for q in queues[:100] if q[-1] == "5"
    ]
    assert await names_of(api, "?name=%5Eq") == []
    page = await get(api, "?name=q000&page=1&page_size=5")
    assert (page["filtered_count"], page["total_count"], page["page_count"]) == (10, COUNT, 2)


async def test_only_the_columns_asked_for_come(api: Api) -> None:
    api.declare("q", max_length=3)
    assert await get(api, "?columns=name,arguments.x-max-length,absent") == [
        {"name": "q", "arguments": {"x-max-length": 3}}
    ]


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ("name,name.vhost", {"name": "q"}),
        ("arguments.x-max-length,arguments", {"arguments": {"x-max-length": 3}}),
        ("arguments,arguments.name", {"arguments": {"x-max-length": 3}}),
        ("policy,policy.name.vhost", {"policy": None}),
        ("arguments.name", {}),
        ("name,name", {"name": "q"}),
    ],
)
async def test_columns_within_others_change_nothing(api: Api, columns: str, row: dict[str, object]) -> None:
    queue = api.declare("q", max_length=3)
    assert await get(api, f"?columns={columns}") == [row]
    assert queue.arguments == {"x-max-length": 3}


@pytest.mark.parametrize(
    "query",
    [
        "page=0",
        "page=-1",
        "page=x",
        "page=",
        "page=1&page_size=0",
        "page=1&page_size=501",
        "page=1&page_size=x",
        "name=(&use_regex=true",
        f"name={'a' * 501}&use_regex=true",
        "use_regex=yes",
        "sort_reverse=1",
    ],
)
async def test_a_query_that_makes_no_sense_is_400(api: Api, query: str) -> None:
    answer = await api.get(f"/api/queues?{query}")
    assert answer.status == 400
    assert answer.json["error"] == "bad_request"


@pytest.mark.parametrize("slashes", ["/", "//"])
async def test_slashes_may_follow_the_path_of_a_list(api: Api, slashes: str) -> None:
    api.declare("q")
    assert await names_of(api, slashes) == ["q"]
    assert (await api.get(f"/api/queues/%2F/q{slashes}")).status == 404


async def test_expression_that_takes_too_long_is_400(api: Api) -> None:
    """It would take longer than anybody waits, and the whole broker with it."""
    api.declare("a" * 40 + "!")
    answer = await api.get("/api/queues?name=%5E(a%7Caa)%2B%24&use_regex=true")
    assert answer.status == 400
    assert answer.json["reason"] == "name: '^(a|aa)+$' takes too long"
