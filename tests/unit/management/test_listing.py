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


async def test_a_list_without_items_has_no_pages_and_the_first_is_empty(api: Api) -> None:
    page = await get(api, "?page=1")
    assert (page["items"], page["page_count"], page["page_size"]) == ([], 0, 100)


async def test_a_page_that_begins_behind_the_end_is_400(api: Api) -> None:
    for name in ("a", "b"):
        api.declare(name)
    assert (await get(api, "?page=2&page_size=2"))["items"] == []
    answer = await api.get("/api/queues?page=3&page_size=2")
    assert answer.status == 400
    assert answer.json == {
        "error": "page_out_of_range",
        "reason": "Page out of range, page: 3 page size: 2, len: 2",
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
    assert await names_of(api, "?name=Q000") == queues[:10]
    assert await names_of(api, "?name=%5EQ000&use_regex=true") == queues[:10]
    page = await get(api, "?name=q000&page=1&page_size=5")
    assert (page["filtered_count"], page["total_count"], page["page_count"]) == (10, COUNT, 2)


async def test_only_the_columns_asked_for_come(api: Api) -> None:
    api.declare("q", max_length=3)
    assert await get(api, "?columns=name,arguments.x-max-length,absent") == [
        {"name": "q", "arguments": {"x-max-length": 3}}
    ]


NO_NUMBER = ("bad_request", "Pagination parameters are invalid")


def wrong(page: int, size: object) -> tuple[str, str]:
    reason = f"Invalid pagination parameters: page number {page}, page size {size}"
    return "invalid_pagination_parameters", reason


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ("name,name.vhost", {"name": "q"}),
        ("arguments.x-max-length,arguments", {"arguments": {"x-max-length": 3}}),
        ("arguments,arguments.name", {"arguments": {"x-max-length": 3}}),
        ("policy,policy.name.vhost", {"policy": None}),
        ("arguments.name", {"arguments": {}}),
        ("name,name", {"name": "q"}),
    ],
)
async def test_columns_within_others_change_nothing(api: Api, columns: str, row: dict[str, object]) -> None:
    queue = api.declare("q", max_length=3)
    assert await get(api, f"?columns={columns}") == [row]
    assert queue.arguments == {"x-max-length": 3}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("page=0", wrong(0, "undefined")),
        ("page=-1", wrong(-1, "undefined")),
        ("page=1&page_size=0", wrong(1, 0)),
        ("page=1&page_size=501", wrong(1, 501)),
        ("page=x", NO_NUMBER),
        ("page=", NO_NUMBER),
        ("page=1.5", NO_NUMBER),
        ("page=1&page_size=x", NO_NUMBER),
        ("page_size=x", NO_NUMBER),
    ],
)
async def test_a_page_that_makes_no_sense_is_400_in_the_words_of_rabbitmq(
    api: Api, query: str, expected: tuple[str, str]
) -> None:
    answer = await api.get(f"/api/queues?{query}")
    assert answer.status == 400
    assert (answer.json["error"], answer.json["reason"]) == expected


@pytest.mark.parametrize("query", ["name=(&use_regex=true", f"name={'a' * 501}&use_regex=true"])
async def test_an_expression_that_makes_no_sense_is_400(api: Api, query: str) -> None:
    answer = await api.get(f"/api/queues?{query}")
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


@pytest.mark.parametrize("query", ["page_size=0", "page_size=501", "use_regex=yes", "sort_reverse=1"])
async def test_sizes_without_a_page_and_flags_that_are_not_true_change_nothing(api: Api, query: str) -> None:
    for name in ("a", "b"):
        api.declare(name)
    assert await names_of(api, f"?{query}") == ["a", "b"]


@pytest.mark.parametrize(
    "path",
    [
        "policies", "policies/%2F", "operator-policies", "operator-policies/%2F", "permissions",
        "users/guest/permissions", "vhosts/%2F/permissions", "topic-permissions", "parameters",
        "parameters/shovel", "parameters/shovel/%2F", "global-parameters",
    ],
)  # fmt: skip
async def test_lists_of_what_operators_define_have_no_pages(api: Api, path: str) -> None:
    whole = (await api.get(f"/api/{path}")).json
    assert isinstance(whole, list)
    for query in ("page=1&page_size=1", "page=7", "page=x"):
        assert (await api.get(f"/api/{path}?{query}")).json == whole


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
