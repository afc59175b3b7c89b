"""All errors are answered in one form."""

from __future__ import annotations

import pytest

from tests.support.http_api import Api
from warren.management import queues


async def test_path_that_is_not_there_is_404_in_json(api: Api) -> None:
    answer = await api.get("/api/nothing")
    assert (answer.status, answer.json) == (404, {"error": "Object Not Found", "reason": "Not Found"})


async def test_method_that_is_not_there_is_405_and_tells_which_are(api: Api) -> None:
    answer = await api.request("POST", "/api/overview")
    assert (answer.status, answer.json["error"]) == (405, "bad_request")
    assert "GET" in answer.headers["Allow"]


async def test_mistake_of_ours_is_500_and_goes_to_the_log(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(queues, "describe", fail)
    api.declare("q")
    answer = await api.get("/api/queues/%2F/q")
    assert (answer.status, answer.json["error"]) == (500, "internal_error")
    assert "ours" not in answer.body.decode()
    assert "ZeroDivisionError: ours" in caplog.text
