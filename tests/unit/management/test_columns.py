"""Columns of single objects: `?columns=…` gives only these, as in lists."""

from __future__ import annotations

import pytest

from tests.support.http_api import Api
from warren import commands
from warren.management.columns import Columns, chosen

VALUE = {"a": 1, "b": {"c": 2, "d": {"e": 3, "f": 4}}, "list": [{"g": 5, "h": 6}, {"h": 7}, 8]}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": None}, {"a": 1}),
        ({"absent": None}, {}),
        ({"b": {"d": {"f": None}}}, {"b": {"d": {"f": 4}}}),
        ({"b": {"absent": None}}, {"b": {}}),
        ({"a": {"deeper": None}}, {"a": 1}),
        ({"list": {"g": None}}, {"list": [{"g": 5}, {}, 8]}),
    ],
)
def test_columns_lead_into_objects_and_lists(columns: Columns, expected: object) -> None:
    assert chosen(VALUE, columns) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("name", {"name": "q"}),
        ("name,,messages", {"name": "q", "messages": 0}),
        ("arguments.x-max-length", {"arguments": {"x-max-length": 3}}),
        ("arguments.x-max-length,arguments", {"arguments": {"x-max-length": 3, "x-expires": 99_000}}),
        ("arguments,arguments.x-max-length", {"arguments": {"x-max-length": 3, "x-expires": 99_000}}),
        ("absent", {}),
        (".", None),
        ("", None),
    ],
)
async def test_one_queue_comes_with_the_columns_asked_for(
    api: Api, query: str, expected: dict[str, object] | None
) -> None:
    """Without the name of a column, all come."""
    api.declare("q", max_length=3, expires=99_000)
    found = (await api.get(f"/api/queues/%2F/q?columns={query}")).json
    if expected is None:
        assert found.keys() >= {"name", "messages", "consumer_details"}
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("path", "column"),
    [
        ("overview", "product_name"),
        ("whoami", "name"),
        ("cluster-name", "name"),
        ("nodes/warren", "mem_used"),
        ("exchanges/%2F/amq.direct", "type"),
        ("vhosts/%2F", "name"),
        ("users/guest", "tags"),
        ("permissions/%2F/guest", "user"),
        ("policies/%2F/p", "pattern"),
        ("operator-policies/%2F/p", "pattern"),
        ("global-parameters/g", "value"),
        ("bindings/%2F/e/amq.direct/q/q/k", "source"),
    ],
)
async def test_other_objects_do_so_too(api: Api, path: str, column: str) -> None:
    api.declare("q")
    api.broker.execute(
        commands.Bind(vhost="/", source="amq.direct", destination="q", to_queue=True, routing_key="k")
    )
    for operator in (False, True):
        api.broker.execute(
            commands.PutPolicy(
                vhost="/", name="p", pattern="^x", definition={"expires": 9000}, operator=operator
            )
        )
    api.broker.execute(commands.SetGlobalParameter(name="g", value=7))
    assert list((await api.get(f"/api/{path}?columns={column}")).json) == [column]


async def test_short_lists_do_so_too(api: Api) -> None:
    assert (await api.get("/api/nodes?columns=name")).json == [{"name": "warren"}]
    flags = (await api.get("/api/feature-flags?columns=name")).json
    assert {tuple(flag) for flag in flags} == {("name",)}
