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


async def test_options_tell_which_methods_there_are(api: Api) -> None:
    answer = await api.request("OPTIONS", "/api/overview")
    assert (answer.status, answer.body) == (200, b"")
    assert "GET" in answer.headers["Allow"]


async def test_what_is_missing_for_a_change_has_its_own_word(api: Api) -> None:
    for method, path, error in (
        ("GET", "/api/queues/none/q", "Object Not Found"),
        ("DELETE", "/api/queues/none/q", "Object Not Found"),
        ("PUT", "/api/queues/none/q", "not_found"),
        ("POST", "/api/bindings/%2F/e/amq.direct/q/none", "not_found"),
    ):
        answer = await api.request(method, path)
        assert (answer.status, answer.json["error"]) == (404, error)


async def test_body_null_is_as_good_as_none(api: Api) -> None:
    assert (await api.put("/api/queues/%2F/q", None)).status == 201


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


TOO_LONG = "9" * 5000


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/health/checks/port-listener/{TOO_LONG}", 400),
        (f"/api/health/checks/certificate-expiration/{TOO_LONG}/days", 400),
        (f"/api/message-jobs/{TOO_LONG}", 404),
        (f"/api/message-jobs/1?wait={TOO_LONG}", 404),
        (f"/api/queues/%2F/q/messages?count={TOO_LONG}", 400),
        (f"/api/segments/%2F/q/{TOO_LONG}", 400),
        (f"/api/queues?page={TOO_LONG}", 400),
        (f"/api/queues?lengths_age={TOO_LONG}&lengths_incr=1", 200),
        (f"/api/log?lines={TOO_LONG}", 400),
    ],
)
async def test_number_of_very_many_digits_is_no_error_of_ours(api: Api, path: str, status: int) -> None:
    api.declare("q")
    assert (await api.get(path)).status == status


async def test_text_of_very_many_digits_is_no_number(api: Api) -> None:
    answer = await api.put("/api/vhost-limits/%2F/max-queues", {"value": TOO_LONG})
    assert (answer.status, answer.json["reason"]) == (400, "value: expected a whole number")


async def test_numbers_may_be_written_as_texts(api: Api) -> None:
    await api.publish(api.declare("q"), [b"1", b"2", b"3"])
    body = {"count": "2", "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert len((await api.post("/api/queues/%2F/q/get", body)).json) == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("vhost-limits/%2F/max-queues", {"value": "7"}),
        ("user-limits/reader/max-channels", {"value": "7"}),
        ("policies/%2F/p", {"pattern": "x", "definition": {"expires": 1000}, "priority": "7"}),
    ],
)
async def test_where_rabbitmq_takes_no_numbers_as_texts_they_are_refused(
    api: Api, path: str, body: object
) -> None:
    answer = await api.put(f"/api/{path}", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
