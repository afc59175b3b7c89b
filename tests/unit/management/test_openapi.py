"""The description of the API: it has every endpoint, and it is true."""

from __future__ import annotations

from tests.support.http_api import Api
from warren.management.message_stats import QUERY as STATS_QUERY


async def test_everybody_gets_the_description(api: Api) -> None:
    answer = await api.get("/api/openapi.json", user="")
    assert answer.status == 200
    assert answer.json["openapi"] == "3.1.0"
    paths = answer.json["paths"]
    assert "/api/openapi.json" in paths
    assert set(paths["/api/vhosts/{vhost}"]) == {"get", "put", "delete"}
    answers = set(paths["/api/vhosts/{vhost}"]["put"]["responses"])
    assert answers == {"201", "204", "400", "401", "403", "404", "429"}


async def test_file_may_be_sent_in_a_form(api: Api) -> None:
    operation = (await api.get("/api/openapi.json")).json["paths"]["/api/definitions"]["post"]
    assert set(operation["requestBody"]["content"]) == {"application/json", "multipart/form-data"}


async def test_names_in_paths_and_queries_are_described(api: Api) -> None:
    paths = (await api.get("/api/openapi.json")).json["paths"]
    described = paths["/api/queues/{vhost}"]["get"]
    assert {each["name"]: each["in"] for each in described["parameters"]} == {
        "vhost": "path",
        "page": "query",
        "page_size": "query",
        "name": "query",
        "use_regex": "query",
        "sort": "query",
        "sort_reverse": "query",
        "columns": "query",
        **{each.name: "query" for each in STATS_QUERY},
        "disable_stats": "query",
        "enable_queue_totals": "query",
    }
    assert described["security"] == [{"basic": []}, {"bearer": []}]
    assert paths["/metrics"]["get"]["security"] == []
