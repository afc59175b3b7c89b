"""Which users may use the API, and what each of them sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.fake_client import FakeLink, make_peer
from tests.support.fakes import quick_hash
from tests.support.http_api import Api, make_broker
from warren import commands, events
from warren.amqp.reader import ReadBuffer
from warren.amqp.table import Table
from warren.broker import passwords
from warren.broker.access import Permissions
from warren.broker.passwords import hash_password
from warren.broker.throttle import Gate
from warren.management import auth
from warren.session.connection import Connection
from warren.session.peer import is_loopback

SEGMENTS = "/api/segments/%2F/open"


@pytest.mark.parametrize(
    ("user", "password"), [("", None), ("guest", "wrong"), ("nobody", "nobody"), ("guest", "")]
)
async def test_who_is_not_known_gets_401_and_is_told_how_to_log_in(
    api: Api, user: str, password: str | None
) -> None:
    answer = await api.get("/api/whoami", user=user, password=password)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert answer.json == {"error": "not_authorized", "reason": "Login failed"}


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Bearer abc", "Basic Z3Vlc3Q="])
async def test_header_that_is_none_gets_401(api: Api, header: str) -> None:
    answer = await api.get("/api/whoami", user="", headers={"Authorization": header})
    assert answer.status == 401


async def test_failed_login_is_an_event_with_the_reason(api: Api) -> None:
    seen: list[events.AuthenticationFailed] = []
    api.broker.subscribe(events.AuthenticationFailed, seen.append)
    await api.get("/api/whoami", password="wrong")
    assert [(event.user, event.reason) for event in seen] == [("guest", "wrong password")]


@pytest.mark.parametrize("user", ["guest", "slow", "without", "nobody"])
async def test_every_refusal_costs_one_slow_hash(
    api: Api, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    hashed: list[bytes] = []

    def count(password: bytes, _salt: bytes) -> bytes:
        hashed.append(password)
        return bytes(32)

    api.broker.execute(commands.PutUser(name="slow", password=hash_password("slow", bytes(16))))
    api.broker.execute(commands.PutUser(name="without", password=None))
    monkeypatch.setattr(passwords, "_scrypt", count)
    assert (await api.get("/api/whoami", user=user, password="wrong")).status == 401
    assert hashed == [b"wrong"]


async def test_request_whose_password_cannot_be_hashed_is_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_password: bytes, _salt: bytes) -> bytes:
        raise MemoryError("no room to hash in")

    monkeypatch.setattr(passwords, "_scrypt", fail)
    assert (await api.get("/api/whoami", user="nobody")).status == 401


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Api]:
    """A broker that lets nobody fail without a delay."""
    settings = {"login_failures_free": 0, "login_delay_max": 3600}
    async with make_broker(tmp_path / "data", **settings) as broker, aiohttp.ClientSession() as session:
        yield Api(broker, session)


async def test_login_after_failures_waits_and_is_answered(strict: Api) -> None:
    assert (await strict.get("/api/whoami", password="wrong")).status == 401
    answered = asyncio.create_task(strict.get("/api/whoami"))
    gate = strict.broker.node.logins.throttle.addresses["127.0.0.1"]
    assert gate.opens_at > gate.failed_at
    assert (await answered).status == 200
    assert strict.broker.world.now() >= gate.opens_at
    assert not strict.broker.node.logins.throttle.addresses, "a success forgets"


async def test_login_that_would_wait_too_long_is_told_when_to_come_again(
    strict: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "HANDSHAKE_SECONDS_MAX", 0.05)
    gate = Gate(failures=8, failed_at=strict.broker.world.now(), opens_at=strict.broker.world.now() + 90)
    strict.broker.node.logins.throttle.addresses["127.0.0.1"] = gate
    answer = await strict.get("/api/whoami")
    assert (answer.status, answer.json["error"]) == (429, "too_many_requests")
    assert 60 < int(answer.headers["Retry-After"]) <= 90
    assert (await strict.get("/metrics", user="")).status == 200


async def test_request_without_credentials_is_no_failed_login(strict: Api) -> None:
    for _ in range(3):
        assert (await strict.get("/api/whoami", user="")).status == 401
    assert not strict.broker.node.logins.throttle.addresses


async def test_whoami_tells_name_and_tags(api: Api) -> None:
    assert (await api.get("/api/whoami")).json == {"name": "guest", "tags": ["administrator"]}


@pytest.mark.parametrize("path", ["/api/whoami", "/api/overview", "/api/queues", "/api/queues/%2F"])
async def test_user_without_a_tag_gets_401_outside_of_what_it_may_read(api: Api, path: str) -> None:
    answer = await api.get(path, user="reader")
    assert (answer.status, answer.json["reason"]) == (401, "Not management user")


async def test_user_without_a_tag_reads_the_queues_it_has_permission_for(api: Api) -> None:
    await api.publish(api.declare("open"), [b"1"])
    api.declare("secret")
    listed = await api.get(SEGMENTS, user="reader")
    base = listed.json["segments"][0]["base"]
    assert (await api.get(f"{SEGMENTS}/{base}", user="reader")).status == 200
    for path in ("/api/segments/%2F/secret", "/api/segments/%2F/secret/1", "/api/segments/%2F/absent"):
        answer = await api.get(path, user="reader")
        assert (answer.status, answer.json["error"]) == (403, "not_authorised")
        assert "read access to queue" in answer.json["reason"]


async def test_tags_alone_do_not_let_anybody_read_messages(api: Api) -> None:
    await api.publish(api.declare("open"), [b"1"])
    for user in ("manager", "monitor"):
        assert (await api.get(SEGMENTS, user=user)).status == 403


async def test_queues_that_may_be_read_are_listed_whatever_the_tags(api: Api) -> None:
    api.declare("open")
    api.declare("closed", queue_type="quorum")
    names = {}
    for user in ("reader", "manager", "guest"):
        found = (await api.get("/api/segments/%2F", user=user)).json
        names[user] = {(queue["name"], queue["type"]) for queue in found}
    assert names["reader"] == {("open", "classic")}
    assert names["manager"] == set()
    assert names["guest"] == {("open", "classic"), ("closed", "quorum")}


@pytest.mark.parametrize("what", ["exchanges/%2F/amq.default/publish", "queues/%2F/q/get"])
async def test_monitor_needs_permissions_to_do_anything_in_a_vhost(api: Api, what: str) -> None:
    answer = await api.post(f"/api/{what}", {}, user="monitor")
    assert answer.status == 401
    assert answer.json["reason"] == "User not authorised to access virtual host"


async def test_manager_sees_its_vhosts_and_monitor_all(api: Api) -> None:
    api.broker.execute(commands.AddVhost(name="other"))
    api.broker.execute(commands.DeclareQueue(vhost="other", name="there"))
    api.declare("here")
    names = {}
    for user in ("manager", "monitor"):
        names[user] = {queue["name"] for queue in (await api.get("/api/queues", user=user)).json}
    assert names == {"manager": {"here"}, "monitor": {"here", "there"}}
    assert (await api.get("/api/queues/other", user="manager")).status == 401
    assert (await api.get("/api/queues/other", user="monitor")).status == 200


async def test_vhost_that_is_not_there_is_404_for_who_sees_all_and_401_for_others(api: Api) -> None:
    assert (await api.get("/api/queues/absent", user="monitor")).status == 404
    assert (await api.get("/api/queues/absent", user="manager")).status == 401


async def test_permission_that_is_taken_away_counts_at_once(api: Api) -> None:
    api.declare("open")
    assert (await api.get(SEGMENTS, user="reader")).status == 200
    none = Permissions()
    api.broker.execute(commands.SetPermissions(user="reader", vhost="/", permissions=none))
    assert (await api.get(SEGMENTS, user="reader")).status == 403


@pytest.mark.parametrize(
    ("remote", "expected"),
    [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("fe80::1%eth0", False), (None, False)],
)
def test_guest_is_at_home_only_on_this_machine(remote: str | None, expected: bool) -> None:
    assert is_loopback(remote) is expected


async def test_many_who_log_in_at_once_are_all_let_in(api: Api) -> None:
    answers = await asyncio.gather(*(api.get("/api/whoami") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}


async def test_password_with_other_letters_than_ascii_is_utf_8(api: Api) -> None:
    api.broker.execute(
        commands.PutUser(name="zoë", password=quick_hash("schlüssel"), tags=frozenset({"management"}))
    )
    assert (await api.get("/api/whoami", user="zoë", password="schlüssel")).json["name"] == "zoë"


@pytest.mark.parametrize("end", ["", "/1", "/1?part=seen"])
async def test_segments_of_a_queue_that_belongs_to_an_exchange_are_refused_as_over_amqp(
    api: Api, end: str
) -> None:
    arguments: Table = {"x-delayed-type": "fanout", "x-message-deduplication": True}
    api.broker.execute(
        commands.DeclareExchange(vhost="/", name="x", type="x-delayed-message", arguments=arguments)
    )
    for queue in ("amq.delayed.x", "amq.dedup.x"):
        answer = await api.get(f"/api/segments/%2F/{queue}{end}")
        assert (answer.status, answer.json) == (
            403,
            {
                "error": "not_authorised",
                "reason": f"queue '{queue}' in vhost '/' belongs to an exchange; it can only be purged",
            },
        )
    assert (await api.get("/api/segments/%2F")).json == []


async def test_exclusive_queue_is_for_its_connection_alone(api: Api) -> None:
    owner = Connection(ReadBuffer(), api.broker.node, FakeLink(), make_peer())
    api.broker.execute(commands.DeclareQueue(vhost="/", name="q", owner=owner.id))
    answer = await api.get("/api/segments/%2F/q")
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert answer.json["reason"].startswith("cannot obtain exclusive access to locked queue 'q'")
    assert (await api.get("/api/segments/%2F")).json == []
    owner.lost()
