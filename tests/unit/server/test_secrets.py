"""Passwords and tokens are never in the log, in errors, events, the audit log, or settings that are shown."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.amqp import AmqpClient
from tests.support.fakes import quick_hash
from tests.support.federation import federation_of, until
from tests.support.happenings import Happenings
from tests.support.http_api import Api, make_broker
from tests.support.privacy import open_to_others
from tests.support.process import Address
from warren import Config, commands
from warren.broker.events import Event, ShovelFailed
from warren.broker.passwords import hash_password
from warren.cli.main import main
from warren.client.uri import parse_uri
from warren.relay.shovel_definition import read_shovel
from warren.relay.supervisor import State
from warren.server.app import Broker
from warren.server.config import UserConfig, load
from warren.server.config_definitions import StaticShovel
from warren.server.config_error import ConfigError
from warren.server.log import configure

CANARY = "canary-9f3b"


def shovel(address: str) -> dict[str, Any]:
    """A shovel that has no right to be at this address."""
    uri = f"amqp://guest:{CANARY}@{address}"
    return {"src-uri": "amqp://", "src-queue": "q", "dest-uri": [uri], "reconnect-delay": 0}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that a broker logs, however little it matters."""
    root, own = logging.getLogger(), logging.getLogger("warren")
    before = root.handlers[:], root.level, own.level
    stream = io.StringIO()
    configure("debug", stream)
    yield stream
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    own.setLevel(before[2])


def test_objects_with_secrets_do_not_show_them() -> None:
    hashed = hash_password(CANARY, bytes(16))
    user = UserConfig(name="me", password=CANARY, password_hash=hashed)
    shown = repr(
        (
            user,
            Config(users=(user,)),
            commands.PutUser(name="me", password=hashed),
            parse_uri(f"amqp://me:{CANARY}@host"),
            Config(shovels=(StaticShovel(name="s", definition=shovel("host")),)),
            read_shovel("s", shovel("host")),
            commands.SetParameter(vhost="/", component="shovel", name="s", value=shovel("host")),
            commands.SetGlobalParameter(name="s", value=shovel("host")),
        )
    )
    assert CANARY not in shown
    assert hashed.value not in shown


@pytest.mark.parametrize(
    "text",
    [
        f'[[users]]\npassword = "{CANARY}"\n',
        f'[[users]]\nname = "me"\npassword = "{CANARY}"\ntags = 1\n',
        f'[[users]]\nname = "me"\npassword = "{CANARY}"\nwrong = 1\n',
        f'[[users]]\nname = "me"\npassword = ["{CANARY}"]\n',
        f'[[users]]\nname = "me"\npassword_hash = "{CANARY}!"\n',
        f'[[users]]\nname = "me"\npassword = "{CANARY}"\npermissions = 1\n',
        f'[[users]]\nname = "me"\npassword = "{CANARY}\n',
        f'users = "{CANARY}"\n',
    ],
)
def test_errors_in_settings_do_not_repeat_secrets(tmp_path: Path, text: str) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load({"config": str(path)}, {})
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    "uri", [f"http://me:{CANARY}@host", f"amqp://me:{CANARY}@host/a/b", f"amqp://me:{CANARY}/x@host"]
)
def test_errors_in_urls_do_not_repeat_passwords(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r".+") as raised:
        parse_uri(uri)
    assert CANARY not in str(raised.value)
    with pytest.raises(SystemExit):
        main(["perf", "throughput", "--uri", uri])
    told = capsys.readouterr()
    assert "uri" in told.err.lower()
    assert CANARY not in told.err + told.out


def test_settings_are_shown_without_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(f'[[users]]\nname = "me"\npassword = "{CANARY}"\n')
    for more in ([], ["--json"]):
        assert main(["config", "show", "--config", str(path), *more]) == 0
        assert CANARY not in capsys.readouterr().out


async def use_wrongly(api: Api) -> list[bytes]:
    """Requests that carry the canary where secrets are, and in bodies that are wrong."""
    answers = [
        await api.get("/api/whoami", password=CANARY),
        await api.get("/api/whoami", user="", headers={"Authorization": f"Bearer {CANARY}"}),
        await api.get("/api/whoami", user="", headers={"Authorization": CANARY}),
        await api.request("PUT", "/api/vhosts/new", data=f'{{"password": "{CANARY}"'.encode()),
        await api.request("PUT", "/api/users/new", data=f'{{"password": "{CANARY}"'.encode()),
        await api.request("PUT", "/api/users/new", data=f'{{"password": ["{CANARY}"]}}'.encode()),
        await api.request("PUT", "/api/users/new", data=f'{{"password": "{CANARY}", "tags": ""}}'.encode()),
    ]
    return [answer.body for answer in answers]


async def test_running_broker_tells_no_secrets(tmp_path: Path, log: io.StringIO) -> None:
    seen: list[str] = []
    audit = tmp_path / "audit.log"
    settings = {"events_stream": True, "audit_log": str(audit), "auth_backends": ("internal",)}
    async with make_broker(tmp_path / "data", **settings) as broker, aiohttp.ClientSession() as session:
        broker.subscribe(Event, lambda event: seen.append(repr(event)))
        bodies = await use_wrongly(Api(broker, session))
        await log_in_wrongly(broker)
        broker.execute(commands.PutUser(name="me", password=hash_password(CANARY, bytes(16))))
    told = log.getvalue() + audit.read_text() + "".join(seen) + b"".join(bodies).decode()
    assert "authentication failed" in log.getvalue()
    assert [json.loads(line)["event"] for line in audit.read_text().splitlines()].count(
        "authentication failed"
    ) >= 3
    assert CANARY not in told
    assert hash_password(CANARY, bytes(16)).value not in told
    for path in (tmp_path / "data").rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()


async def log_in_wrongly(broker: Broker) -> None:
    def over_amqp() -> None:
        client = AmqpClient(Address(broker.host, broker.port))
        client.start()
        client.authenticate(password=CANARY, capabilities=("authentication_failure_close",))
        client.expect_close(403)
        client.abort()

    await asyncio.to_thread(over_amqp)


async def test_shovels_tell_no_secrets(
    tmp_path: Path, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    audit = tmp_path / "audit.log"
    fixed = StaticShovel(name="fixed", definition=shovel("127.0.0.1:1"))
    settings = {"events_stream": True, "audit_log": str(audit), "shovels": (fixed,)}
    async with make_broker(tmp_path / "data", **settings) as broker, aiohttp.ClientSession() as session:
        broker.subscribe(Event, lambda event: seen.append(repr(event)))
        api = Api(broker, session)
        with Happenings(broker, ShovelFailed) as happenings:
            for name, address in (("closed", "127.0.0.1:1"), ("refused", broker.address), ("here", "")):
                await api.put(f"/api/parameters/shovel/%2F/{name}", {"value": shovel(address)})
            failures = await happenings.until(ShovelFailed, 3)
        wrong = [
            shovel("127.0.0.1:x"),
            shovel("["),
            shovel("") | {f"amqp://me:{CANARY}@b": 1},
            f"a:{CANARY}@b",
        ]
        answers = [await api.put("/api/parameters/shovel/%2F/wrong", {"value": each}) for each in wrong]
        paths = ("/api/shovels", "/api/shovels/vhost/%2F/refused", "/api/connections", "/metrics/per-object")
        bodies = [answer.body for answer in answers] + [(await api.get(path)).body for path in paths]
        url = f"http://guest:guest@{broker.services['http'].address}"
        for words in ("shovels ls", "shovels show refused", "shovels ls --json", "parameters ls --json"):
            assert await asyncio.to_thread(main, [*words.split(), "--url", url]) == 0
    assert sorted(each.shovel for each in failures) == ["closed", "here", "refused"]
    assert [answer.status for answer in answers] == [400] * 4
    printed = capsys.readouterr()
    told = log.getvalue() + audit.read_text() + "".join(seen) + printed.out + printed.err
    assert "shovel failed" in told
    assert "PUT /api/parameters/shovel/%2F/refused" in audit.read_text()
    assert CANARY not in told + b"".join(bodies).decode()


def upstream(address: str) -> dict[str, Any]:
    """An upstream that does not let us in, by a URI with two passwords."""
    uri = f"amqp://guest:{CANARY}@{address}?password={CANARY}&keyfile=k"
    return {"uri": [uri], "reconnect-delay": 0}


FEDERATION_COMMANDS = (
    "federation links ls",
    "federation links ls --down --json",
    "federation upstreams ls",
    "federation upstreams ls --json",
    "federation upstream-sets ls",
    "parameters ls --component federation-upstream",
)
FEDERATION_PATHS = (
    "/api/federation-links",
    "/api/federation-links/state/down",
    "/api/connections",
    "/api/policies",
    "/api/overview",
    "/metrics",
    "/metrics/per-object",
)


async def test_federation_tells_no_secrets(
    tmp_path: Path, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    audit, data = tmp_path / "audit.log", tmp_path / "data"
    settings = {"events_stream": True, "audit_log": str(audit)}
    async with make_broker(data, **settings) as broker, aiohttp.ClientSession() as session:
        broker.subscribe(Event, lambda event: seen.append(repr(event)))
        api = Api(broker, session)
        upstreams = {"closed": upstream("127.0.0.1:1"), "refused": upstream(broker.address)}
        for name, value in upstreams.items():
            await api.put(f"/api/parameters/federation-upstream/%2F/{name}", {"value": value})
        elements = [{"upstream": "refused", **upstreams["closed"]}]
        await api.put("/api/parameters/federation-upstream-set/%2F/s", {"value": elements})
        wrong = [upstream("["), upstream(broker.address) | {f"amqp://me:{CANARY}@b": 1}]
        answers = [
            await api.put("/api/parameters/federation-upstream/%2F/wrong", {"value": each}) for each in wrong
        ]
        policy = {"pattern": "^amq.topic$", "definition": {"federation-upstream-set": "all"}}
        await api.put("/api/policies/%2F/p", policy)
        links = federation_of(broker)
        await until(lambda: [each.supervised.status.state for each in links.all()] == [State.TERMINATED] * 2)
        bodies = [(await api.get(path)).body for path in FEDERATION_PATHS]
        tags = frozenset({"policymaker"})
        broker.execute(commands.PutUser(name="reader", password=quick_hash("reader"), tags=tags))
        shown = (await api.get("/api/parameters", user="reader")).body
        url = f"http://guest:guest@{broker.services['http'].address}"
        for words in FEDERATION_COMMANDS:
            assert await asyncio.to_thread(main, [*words.split(), "--url", url]) == 0
        exported = (await api.get("/api/definitions")).body.decode()
        assert CANARY in exported, "this is what it is for"
    assert [answer.status for answer in answers] == [400] * 2
    printed = capsys.readouterr()
    told = log.getvalue() + audit.read_text() + "".join(seen) + printed.out + printed.err
    assert "federation link ended" in told
    assert "amqp://guest:***@" in shown.decode()
    assert CANARY not in told + b"".join([*bodies, shown, *(answer.body for answer in answers)]).decode()
    kept = [path for path in data.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert [path.name for path in kept] == ["definitions.log"], "passwords of URIs are on disk in one place"
    assert open_to_others(data) == set(), "which nobody else can read"
