"""Who may use which endpoint: a line for each endpoint, and a request for each line and each tag."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.http_api import USERS, Api, make_broker, user
from warren.management.app import endpoints_of
from warren.management.context import Context

PUBLIC = ""  # needs no login
USER = "user"  # any user; the endpoint looks at permissions
MANAGEMENT, POLICYMAKER = "management", "policymaker"
MONITORING, ADMINISTRATOR = "monitoring", "administrator"
TAGS = (MANAGEMENT, POLICYMAKER, MONITORING, ADMINISTRATOR)
ALLOWED = {
    PUBLIC: {PUBLIC, USER, *TAGS},
    USER: {USER, *TAGS},
    MANAGEMENT: set(TAGS),
    POLICYMAKER: {POLICYMAKER, ADMINISTRATOR},
    MONITORING: {MONITORING, ADMINISTRATOR},
    ADMINISTRATOR: {ADMINISTRATOR},
}
EXPECTED = {
    "GET /api/definitions/{vhost}": MANAGEMENT,
    "GET /api/nodes": MONITORING,
    "GET /api/nodes/{name}": MONITORING,
    "GET /api/nodes/{name}/memory": MONITORING,
    "GET /api/openapi.json": PUBLIC,
    "GET /api/overview": MANAGEMENT,
    "GET /api/queues": MANAGEMENT,
    "GET /api/queues/{vhost}": MANAGEMENT,
    "GET /api/queues/{vhost}/{queue}": MANAGEMENT,
    "GET /api/segments/{vhost}": USER,
    "GET /api/segments/{vhost}/{queue}": USER,
    "GET /api/segments/{vhost}/{queue}/{base}": USER,
    "POST /api/segments/{vhost}": USER,
    "POST /api/streams/{vhost}": USER,
    "GET /api/streams/{vhost}/{queue}/offsets": USER,
    "GET /api/streams/{vhost}/{queue}/offsets/{name}": USER,
    "PUT /api/streams/{vhost}/{queue}/offsets/{name}": USER,
    "DELETE /api/streams/{vhost}/{queue}/offsets/{name}": USER,
    "GET /api/vhosts": MANAGEMENT,
    "GET /api/vhosts/{vhost}": MANAGEMENT,
    "PUT /api/vhosts/{vhost}": ADMINISTRATOR,
    "DELETE /api/vhosts/{vhost}": ADMINISTRATOR,
    "GET /api/whoami": MANAGEMENT,
    "GET /health/live": PUBLIC,
    "GET /health/ready": PUBLIC,
    "GET /metrics": PUBLIC,
    "GET /ws/amqp": PUBLIC,
}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    users = (*USERS, user(USER, read=""), *(user(tag, tag, read="") for tag in TAGS))
    async with make_broker(tmp_path / "data", users=users) as broker, aiohttp.ClientSession() as session:
        yield Api(broker, session)


async def test_every_endpoint_has_a_line_here(api: Api) -> None:
    context = Context(api.broker)
    known = {f"{each.method} {re.sub(r':[^}]*}', '}', each.path)}" for each in endpoints_of(context)}
    context.close()
    assert known == set(EXPECTED)


@pytest.mark.parametrize("endpoint", EXPECTED)
async def test_users_are_allowed_or_refused_by_their_tags(api: Api, endpoint: str) -> None:
    method, path = endpoint.split(" ")
    path = path.replace("{vhost}", "%2F" if EXPECTED[endpoint] == USER else "absent")
    path = re.sub("{[a-z_]+}", "absent", path)
    for tag in (PUBLIC, USER, *TAGS):
        answer = await api.request(method, path, user=tag)
        refused = answer.status == 401 and answer.json["reason"].startswith(("Not ", "Login failed"))
        assert refused == (tag not in ALLOWED[EXPECTED[endpoint]]), (tag, answer.status, answer.body)
