"""The probes for supervisors without a user."""

from __future__ import annotations

from tests.support.http_api import Api


async def test_a_broker_that_answers_is_live_and_ready(api: Api) -> None:
    for path in ("/health/live", "/health/ready"):
        answer = await api.get(path, user="")
        assert (answer.status, answer.json) == (200, {"status": "ok"})


async def test_a_broker_with_an_alarm_is_live_but_not_ready(api: Api) -> None:
    api.broker.node.raise_alarm("disk")
    assert (await api.get("/health/live", user="")).status == 200
    answer = await api.get("/health/ready", user="")
    assert (answer.status, answer.json) == (503, {"error": "not_ready", "reason": "alarms: disk"})
    api.broker.node.clear_alarm("disk")
    assert (await api.get("/health/ready", user="")).status == 200
