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
    "GET /api/all-configuration": ADMINISTRATOR,
    "POST /api/all-configuration": ADMINISTRATOR,
    "GET /api/auth": PUBLIC,
    "GET /api/auth/attempts/{name}": MONITORING,
    "DELETE /api/auth/attempts/{name}": MONITORING,
    "GET /api/auth/attempts/{name}/source": MONITORING,
    "DELETE /api/auth/attempts/{name}/source": MONITORING,
    "GET /api/auth/hash_password/{password}": ADMINISTRATOR,
    "POST /api/auth/hash_password": ADMINISTRATOR,
    "GET /api/definitions": ADMINISTRATOR,
    "POST /api/definitions": ADMINISTRATOR,
    "GET /api/definitions/{vhost}": ADMINISTRATOR,
    "POST /api/definitions/{vhost}": ADMINISTRATOR,
    "GET /api/global-parameters": POLICYMAKER,
    "GET /api/global-parameters/{name}": POLICYMAKER,
    "PUT /api/global-parameters/{name}": POLICYMAKER,
    "DELETE /api/global-parameters/{name}": POLICYMAKER,
    "GET /api/message-jobs": MANAGEMENT,
    "GET /api/message-jobs/{job}": MANAGEMENT,
    "DELETE /api/message-jobs/{job}": MANAGEMENT,
    "GET /api/aliveness-test/{vhost}": MANAGEMENT,
    "GET /api/bindings": MANAGEMENT,
    "GET /api/bindings/{vhost}": MANAGEMENT,
    "GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}": MANAGEMENT,
    "POST /api/bindings/{vhost}/e/{source}/{kind}/{destination}": MANAGEMENT,
    "GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}": MANAGEMENT,
    "DELETE /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}": MANAGEMENT,
    "GET /api/channels": MANAGEMENT,
    "GET /api/channels/{name}": MANAGEMENT,
    "GET /api/cluster-name": MANAGEMENT,
    "GET /api/cluster/shards": MONITORING,
    "PUT /api/cluster/shards/{shard}/leader": ADMINISTRATOR,
    "POST /api/cluster/shards/{shard}/forced-leader": ADMINISTRATOR,
    "DELETE /api/cluster/nodes/{name}": ADMINISTRATOR,
    "PUT /api/cluster/drain": ADMINISTRATOR,
    "DELETE /api/cluster/drain": ADMINISTRATOR,
    "GET /api/connections": MANAGEMENT,
    "GET /api/connections/username/{user}": MANAGEMENT,
    "DELETE /api/connections/username/{user}": MANAGEMENT,
    "GET /api/connections/{name}": MANAGEMENT,
    "DELETE /api/connections/{name}": MANAGEMENT,
    "GET /api/connections/{name}/channels": MANAGEMENT,
    "GET /api/consumers": MANAGEMENT,
    "GET /api/consumers/{vhost}": MANAGEMENT,
    "GET /api/exchanges": MANAGEMENT,
    "GET /api/exchanges/{vhost}": MANAGEMENT,
    "GET /api/exchanges/{vhost}/{exchange}": MANAGEMENT,
    "PUT /api/exchanges/{vhost}/{exchange}": MANAGEMENT,
    "DELETE /api/exchanges/{vhost}/{exchange}": MANAGEMENT,
    "GET /api/exchanges/{vhost}/{exchange}/bindings/destination": MANAGEMENT,
    "GET /api/exchanges/{vhost}/{exchange}/bindings/source": MANAGEMENT,
    "POST /api/exchanges/{vhost}/{exchange}/publish": MANAGEMENT,
    "GET /api/federation-links": MONITORING,
    "GET /api/federation-links/state/down": MONITORING,
    "GET /api/federation-links/{vhost}": MONITORING,
    "GET /api/federation-links/{vhost}/state/down": MONITORING,
    "DELETE /api/federation-links/vhost/{vhost}/{id}/{node}/restart": POLICYMAKER,
    "PUT /api/cluster-name": ADMINISTRATOR,
    "GET /api/extensions": MANAGEMENT,
    "GET /api/feature-flags": ADMINISTRATOR,
    "PUT /api/feature-flags/{name}/enable": ADMINISTRATOR,
    "GET /api/deprecated-features": MANAGEMENT,
    "GET /api/deprecated-features/used": MANAGEMENT,
    "GET /api/health/checks/alarms": MANAGEMENT,
    "GET /api/health/checks/certificate-expiration/{within}/{unit}": MANAGEMENT,
    "GET /api/health/checks/local-alarms": MANAGEMENT,
    "GET /api/health/checks/node-is-mirror-sync-critical": MANAGEMENT,
    "GET /api/health/checks/node-is-quorum-critical": MANAGEMENT,
    "GET /api/health/checks/port-listener/{port}": MANAGEMENT,
    "GET /api/health/checks/protocol-listener/{protocol}": MANAGEMENT,
    "GET /api/health/checks/virtual-hosts": MANAGEMENT,
    "GET /api/healthchecks/node": MANAGEMENT,
    "GET /api/healthchecks/node/": MANAGEMENT,
    "GET /api/healthchecks/node/{name}": MANAGEMENT,
    "GET /api/log": ADMINISTRATOR,
    "GET /api/nodes": MONITORING,
    "GET /api/nodes/{name}": MONITORING,
    "GET /api/nodes/{name}/memory": MONITORING,
    "GET /api/nodes/{name}/memory/relative": MONITORING,
    "GET /api/openapi.json": PUBLIC,
    "GET /api/operator-policies": MANAGEMENT,
    "GET /api/operator-policies/{vhost}": MANAGEMENT,
    "GET /api/operator-policies/{vhost}/{name}": ADMINISTRATOR,
    "PUT /api/operator-policies/{vhost}/{name}": ADMINISTRATOR,
    "DELETE /api/operator-policies/{vhost}/{name}": ADMINISTRATOR,
    "GET /api/overview": MANAGEMENT,
    "GET /api/parameters": POLICYMAKER,
    "GET /api/parameters/{component}": POLICYMAKER,
    "GET /api/parameters/{component}/{vhost}": POLICYMAKER,
    "GET /api/parameters/{component}/{vhost}/{name}": POLICYMAKER,
    "PUT /api/parameters/{component}/{vhost}/{name}": POLICYMAKER,
    "DELETE /api/parameters/{component}/{vhost}/{name}": POLICYMAKER,
    "GET /api/permissions": ADMINISTRATOR,
    "GET /api/permissions/{vhost}/{user}": ADMINISTRATOR,
    "PUT /api/permissions/{vhost}/{user}": ADMINISTRATOR,
    "DELETE /api/permissions/{vhost}/{user}": ADMINISTRATOR,
    "GET /api/policies": MANAGEMENT,
    "GET /api/policies/{vhost}": MANAGEMENT,
    "GET /api/policies/{vhost}/{name}": POLICYMAKER,
    "PUT /api/policies/{vhost}/{name}": POLICYMAKER,
    "DELETE /api/policies/{vhost}/{name}": POLICYMAKER,
    "GET /api/queues": MANAGEMENT,
    "GET /api/queues/detailed": MANAGEMENT,
    "GET /api/queues/{vhost}": MANAGEMENT,
    "GET /api/queues/{vhost}/{queue}": MANAGEMENT,
    "GET /api/queues/{vhost}/{queue}/messages": MANAGEMENT,
    "POST /api/queues/{vhost}/{queue}/move": MANAGEMENT,
    "POST /api/queues/{vhost}/{queue}/copy": MANAGEMENT,
    "POST /api/queues/{vhost}/{queue}/delete-messages": MANAGEMENT,
    "PUT /api/queues/{vhost}/{queue}/pause": MANAGEMENT,
    "PUT /api/queues/{vhost}/{queue}/resume": MANAGEMENT,
    "PUT /api/queues/{vhost}/{queue}": MANAGEMENT,
    "DELETE /api/queues/{vhost}/{queue}": MANAGEMENT,
    "POST /api/queues/{vhost}/{queue}/actions": MANAGEMENT,
    "GET /api/queues/{vhost}/{queue}/bindings": MANAGEMENT,
    "DELETE /api/queues/{vhost}/{queue}/contents": MANAGEMENT,
    "POST /api/queues/{vhost}/{queue}/get": MANAGEMENT,
    "POST /api/rebalance/queues": ADMINISTRATOR,
    "DELETE /api/reset": ADMINISTRATOR,
    "DELETE /api/reset/{name}": ADMINISTRATOR,
    "GET /api/segments/{vhost}": USER,
    "GET /api/segments/{vhost}/{queue}": USER,
    "GET /api/segments/{vhost}/{queue}/{base}": USER,
    "POST /api/segments/{vhost}": USER,
    "GET /api/shovels": MONITORING,
    "GET /api/shovels/{vhost}": MONITORING,
    "GET /api/shovels/vhost/{vhost}/{name}": MONITORING,
    "DELETE /api/shovels/vhost/{vhost}/{name}": MONITORING,
    "DELETE /api/shovels/vhost/{vhost}/{name}/restart": MONITORING,
    "POST /api/streams/{vhost}": USER,
    "GET /api/streams/{vhost}/{queue}/offsets": USER,
    "GET /api/streams/{vhost}/{queue}/offsets/{name}": USER,
    "PUT /api/streams/{vhost}/{queue}/offsets/{name}": USER,
    "DELETE /api/streams/{vhost}/{queue}/offsets/{name}": USER,
    "GET /api/topic-permissions": ADMINISTRATOR,
    "GET /api/topic-permissions/{vhost}/{user}": ADMINISTRATOR,
    "PUT /api/topic-permissions/{vhost}/{user}": ADMINISTRATOR,
    "DELETE /api/topic-permissions/{vhost}/{user}": ADMINISTRATOR,
    "GET /api/topic-permissions/{vhost}/{user}/{exchange}": ADMINISTRATOR,
    "DELETE /api/topic-permissions/{vhost}/{user}/{exchange}": ADMINISTRATOR,
    "GET /api/user-limits": MANAGEMENT,
    "GET /api/user-limits/{user}": MANAGEMENT,
    "PUT /api/user-limits/{user}/{name}": ADMINISTRATOR,
    "DELETE /api/user-limits/{user}/{name}": ADMINISTRATOR,
    "GET /api/users": ADMINISTRATOR,
    "GET /api/users/{user}": ADMINISTRATOR,
    "PUT /api/users/{user}": ADMINISTRATOR,
    "DELETE /api/users/{user}": ADMINISTRATOR,
    "GET /api/users/without-permissions": ADMINISTRATOR,
    "POST /api/users/bulk-delete": ADMINISTRATOR,
    "GET /api/users/{user}/permissions": ADMINISTRATOR,
    "GET /api/users/{user}/topic-permissions": ADMINISTRATOR,
    "GET /api/vhost-limits": MANAGEMENT,
    "GET /api/vhost-limits/{vhost}": MANAGEMENT,
    "PUT /api/vhost-limits/{vhost}/{name}": ADMINISTRATOR,
    "DELETE /api/vhost-limits/{vhost}/{name}": ADMINISTRATOR,
    "GET /api/vhosts": MANAGEMENT,
    "GET /api/vhosts/{vhost}": MANAGEMENT,
    "PUT /api/vhosts/{vhost}": ADMINISTRATOR,
    "DELETE /api/vhosts/{vhost}": ADMINISTRATOR,
    "POST /api/vhosts/{vhost}/start/{name}": ADMINISTRATOR,
    "GET /api/vhosts/{vhost}/permissions": ADMINISTRATOR,
    "GET /api/vhosts/{vhost}/topic-permissions": ADMINISTRATOR,
    "GET /api/vhosts/{vhost}/channels": MANAGEMENT,
    "GET /api/vhosts/{vhost}/connections": MANAGEMENT,
    "GET /api/whoami": MANAGEMENT,
    "GET /health/live": PUBLIC,
    "GET /health/ready": PUBLIC,
    "GET /metrics": PUBLIC,
    "GET /metrics/detailed": MONITORING,
    "GET /metrics/memory-breakdown": PUBLIC,
    "GET /metrics/per-object": MONITORING,
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
    path = re.sub("{[a-z_]+}", "absent", path.replace("{kind}", "q"))
    for tag in (PUBLIC, USER, *TAGS):
        answer = await api.request(method, path, user=tag)
        refused = answer.status == 401 and answer.json["reason"].startswith(("Not ", "Login failed"))
        assert refused == (tag not in ALLOWED[EXPECTED[endpoint]]), (tag, answer.status, answer.body)
