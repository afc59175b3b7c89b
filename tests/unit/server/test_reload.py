"""SIGHUP: what can change while the broker runs does, and the log names the rest."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.support.certificates import Certificates
from tests.support.frames import PROTOCOL_HEADER
from tests.support.http_api import GUEST, user
from tests.support.tokens import Issuer
from warren import commands, events
from warren.amqp.table import Table
from warren.server.config import HTTP_OFF, Config
from warren.server.config_definitions import StaticShovel
from warren.server.config_error import ConfigError
from warren.server.listeners import AMQPS, HTTPS, OpenPort
from warren.server.oauth.settings import OAuth2Settings
from warren.server.oauth.tokens import OAuth2
from warren.server.reload import Reload

WAIT_SECONDS_MAX = 20


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
async def broker(
    tmp_path: Path, certificates: Certificates, log: pytest.LogCaptureFixture
) -> AsyncIterator[warren.Broker]:
    path = str(certificates.server)
    async with warren.Broker(
        port=0, data_dir=tmp_path / "data", tls_cert=path, tls_port=0, users=(GUEST,)
    ) as broker:
        yield broker


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logger = logging.getLogger("warren")
    before = logger.level
    logger.setLevel(logging.INFO)
    yield caplog
    logger.setLevel(before)


async def reload(broker: warren.Broker, read: Callable[[], Config]) -> None:
    reloading = Reload(broker, read)
    reloading.request()
    assert reloading.task is not None
    await reloading.task


def told(log: pytest.LogCaptureFixture, text: str) -> logging.LogRecord:
    """The one line of the log with this text."""
    (record,) = [each for each in log.records if each.getMessage() == text]
    return record


async def shown_certificate(broker: warren.Broker, certificates: Certificates) -> bytes:
    port = broker.listeners.of(AMQPS)[0].port
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=certificates.context(), server_hostname="localhost"
    )
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    shown = connection.getpeercert(binary_form=True)
    writer.close()
    assert shown is not None
    return shown


async def test_new_connections_see_new_certificates(
    broker: warren.Broker, certificates: Certificates
) -> None:
    before = await shown_certificate(broker, certificates)
    assert await shown_certificate(broker, certificates) == before
    certificates.issue("server", "localhost")
    assert await shown_certificate(broker, certificates) == before
    await reload(broker, lambda: broker.config)
    assert await shown_certificate(broker, certificates) != before


async def test_other_file_may_be_named(broker: warren.Broker, certificates: Certificates) -> None:
    before = await shown_certificate(broker, certificates)
    other = str(certificates.issue("other", "localhost"))
    await reload(broker, lambda: replace(broker.config, tls_cert=other))
    assert await shown_certificate(broker, certificates) != before
    assert broker.config.tls_cert == other


async def is_let_in(port: OpenPort, context: ssl.SSLContext, begin: bytes) -> bool:
    """Whether a client gets an answer. With TLS 1.3 it learns only then that its certificate is refused."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=context)
        writer.write(begin)
        answer = await reader.read(1)
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return False
    return bool(answer)


@pytest.mark.parametrize(
    ("protocol", "begin"), [(AMQPS, PROTOCOL_HEADER), (HTTPS, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")]
)
async def test_certificates_are_revoked_by_a_reload_and_open_connections_stay(
    tmp_path: Path,
    certificates: Certificates,
    log: pytest.LogCaptureFixture,
    protocol: str,
    begin: bytes,
) -> None:
    worker, thief = certificates.client("worker"), certificates.client("thief")
    broker = warren.Broker(
        port=0,
        data_dir=tmp_path / "data",
        tls_cert=str(certificates.server),
        tls_ca=str(certificates.ca),
        tls_crl=str(certificates.revoke()),
        tls_verify="peer",
        tls_port=0,
        http_tls_port=0,
    )
    async with asyncio.timeout(WAIT_SECONDS_MAX), broker:
        (port,) = broker.listeners.of(protocol)
        contexts = [certificates.context(each) for each in (worker, thief)]
        assert [await is_let_in(port, context, begin) for context in contexts] == [True, True]
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=contexts[1])
        certificates.revoke(thief)
        await reload(broker, lambda: broker.config)
        assert [await is_let_in(port, context, begin) for context in contexts] == [True, False]
        writer.write(begin)
        assert await reader.read(1)
        writer.close()
    reason = vars(told(log, "client not let in"))["reason"]
    assert reason == "the client's certificate: certificate revoked"


async def test_wrong_files_change_nothing_and_the_log_says_why(
    broker: warren.Broker, certificates: Certificates, log: pytest.LogCaptureFixture
) -> None:
    before = await shown_certificate(broker, certificates)
    certificates.server.write_text("nothing")
    await reload(broker, lambda: broker.config)
    assert "no certificate" in vars(told(log, "settings not reloaded"))["error"]
    assert await shown_certificate(broker, certificates) == before


async def test_wrong_settings_change_nothing_and_the_log_says_why(
    broker: warren.Broker, log: pytest.LogCaptureFixture
) -> None:
    def read() -> Config:
        raise ConfigError("port = 'x': expected int")

    before = broker.config
    await reload(broker, read)
    assert vars(told(log, "settings not reloaded"))["error"] == "port = 'x': expected int"
    assert broker.config == before


async def test_log_level_holds_at_once(broker: warren.Broker, log: pytest.LogCaptureFixture) -> None:
    broker.node.events.emit(events.QueueCreated("/", "before"))
    await reload(broker, lambda: replace(broker.config, log_level="debug"))
    broker.node.events.emit(events.QueueCreated("/", "after"))
    assert vars(told(log, "queue created"))["queue"] == "after"
    await reload(broker, lambda: replace(broker.config, log_level="info"))
    broker.node.events.emit(events.QueueCreated("/", "later"))
    assert vars(told(log, "queue created"))["queue"] == "after"


async def test_settings_that_need_a_restart_are_named_each_time(
    broker: warren.Broker, log: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        log.clear()
        await reload(broker, lambda: replace(broker.config, heartbeat=7, port=1))
        warning = told(log, "settings that need a restart have changed")
        assert vars(warning)["settings"] == ["heartbeat", "port"]


async def test_users_are_only_made_if_the_settings_allow_it(
    broker: warren.Broker, log: pytest.LogCaptureFixture
) -> None:
    users = (GUEST, user("new"))
    await reload(broker, lambda: replace(broker.config, users=users))
    assert "new" not in broker.node.users
    assert vars(told(log, "settings that need a restart have changed"))["settings"] == ["users"]
    await reload(broker, lambda: replace(broker.config, users=users, reload_definitions=True))
    assert "new" in broker.node.users


async def test_broker_that_began_without_tls_needs_a_restart_for_it(
    tmp_path: Path, certificates: Certificates, log: pytest.LogCaptureFixture
) -> None:
    async with warren.Broker(port=0, data_dir=tmp_path / "plain") as broker:
        await reload(broker, lambda: replace(broker.config, tls_cert=str(certificates.server)))
        assert vars(told(log, "settings that need a restart have changed"))["settings"] == ["tls_cert"]
        assert not vars(told(log, "settings reloaded"))["certificates"]


async def test_keys_of_tokens_are_got_again(tmp_path: Path) -> None:
    """A key that was taken out of the set counts no more."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [Issuer("old").jwk()]}))
    settings = OAuth2Settings(resource_server_id="warren", jwks_file=str(keys))
    broker = warren.Broker(port=0, data_dir=tmp_path / "data", auth_backends=("oauth2",), oauth2=settings)
    async with asyncio.timeout(WAIT_SECONDS_MAX), broker:
        (authenticator,) = broker.authenticators.running
        assert isinstance(authenticator, OAuth2)
        assert set(authenticator.keys.keys) == {"old"}
        keys.write_text(json.dumps({"keys": [Issuer("new").jwk()]}))
        await reload(broker, lambda: broker.config)
        assert authenticator.keys.loading is not None
        await authenticator.keys.loading
        assert set(authenticator.keys.keys) == {"new"}
        before = len(broker.on_reload)
        await broker.stop()
        await broker.start()
        assert len(broker.on_reload) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {
            "policies": (
                commands.PutPolicy(vhost="absent", name="p", pattern="", definition={"max-length": 1}),
            )
        },
        {"policies": (commands.PutPolicy(vhost="/", name="p", pattern="(", definition={"max-length": 1}),)},
    ],
    ids=["no such vhost", "no such pattern"],
)
async def test_wrong_definitions_change_no_setting_and_are_tried_again(
    broker: warren.Broker, certificates: Certificates, log: pytest.LogCaptureFixture, wrong: dict[str, Any]
) -> None:
    shown, before = await shown_certificate(broker, certificates), broker.config
    certificates.issue("server", "localhost")
    for _ in range(2):
        log.clear()
        following = replace(before, log_level="debug", reload_definitions=True, **wrong)
        await reload(broker, lambda: following)  # noqa: B023 - it is called before the next round
        assert told(log, "settings not reloaded").levelno == logging.ERROR
        assert broker.config == before
        assert await shown_certificate(broker, certificates) == shown


async def test_mistake_of_ours_is_reported(broker: warren.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Exception] = []
    monkeypatch.setattr(broker.world, "report", reported.append)
    mistake = KeyError("ours")

    def read() -> Config:
        raise mistake

    await reload(broker, read)
    assert reported == [mistake]


async def test_requests_during_a_reload_become_one_more(broker: warren.Broker) -> None:
    count, may_end = 0, threading.Event()
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    def read() -> Config:
        nonlocal count
        count += 1
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(WAIT_SECONDS_MAX)
        return broker.config

    reloading = Reload(broker, read)
    reloading.request()
    await begun.wait()
    for _ in range(3):
        reloading.request()
    may_end.set()
    assert reloading.task is not None
    await reloading.task
    assert count == 2


async def test_reload_ends_before_the_broker_stops(broker: warren.Broker) -> None:
    before, may_end = broker.config, threading.Event()
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    def read() -> Config:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(WAIT_SECONDS_MAX)
        return replace(before, log_level="debug")

    reloading = Reload(broker, read)
    reloading.request()
    running = reloading.task
    assert running is not None
    await begun.wait()
    await reloading.stop()
    may_end.set()
    reloading.request()
    assert reloading.task is running
    assert running.cancelled()
    assert broker.config == before


# --- all settings ---

RELOADED, RESTART = "settings reloaded", "settings that need a restart have changed"
LENGTH: Table = {"max-length": 1}
SHOVEL = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://"}
SETTINGS: dict[str, tuple[Any, str]] = {  # with another value, and what the log says of it then
    "bind": ("127.0.0.2", RESTART),
    "port": (1, RESTART),
    "listeners": (["127.0.0.1:1"], RESTART),
    "proxy_protocol": (True, RESTART),
    "http_proxy_protocol": (True, RESTART),
    "http_port": (1, RESTART),
    "prometheus_port": (1, RESTART),
    "http_listeners": (["127.0.0.1:1"], RESTART),
    "tls_cert": ("other.pem", RELOADED),
    "tls_key": ("key.pem", RELOADED),
    "tls_key_password": ("secret", RELOADED),
    "tls_ca": ("server.pem", RELOADED),
    "tls_crl": ("", RELOADED),
    "tls_verify": ("require", RELOADED),
    "tls_versions": (("tlsv1.3",), RELOADED),
    "tls_ciphers": ("ECDHE+AESGCM", RELOADED),
    "tls_port": (1, RESTART),
    "tls_listeners": (["127.0.0.1:1"], RESTART),
    "http_tls_port": (1, RESTART),
    "http_tls_listeners": (["127.0.0.1:1"], RESTART),
    "tls_login_from": ("none", RELOADED),
    "tls_login_san_type": ("uri", RELOADED),
    "tls_login_san_index": (1, RELOADED),
    "reload_definitions": (False, RELOADED),
    "data_dir": ("elsewhere", RESTART),
    "cluster_name": ("other", RESTART),
    "log_level": ("warning", RELOADED),
    "heartbeat": (1, RESTART),
    "channel_max": (1, RESTART),
    "frame_max": (4096, RESTART),
    "max_message_bytes": (1, RESTART),
    "max_transaction_messages": (1, RESTART),
    "max_transaction_bytes": (1, RESTART),
    "cluster": ("other", RESTART),
    "cluster_node": ("other", RESTART),
    "cluster_etcd": (("local",), RESTART),
    "cluster_etcd_user": ("other", RESTART),
    "cluster_etcd_password": ("other", RESTART),
    "cluster_etcd_ca": ("ca.pem", RESTART),
    "cluster_etcd_cert": ("server.pem", RESTART),
    "cluster_etcd_key": ("key.pem", RESTART),
    "cluster_advertise": ("other", RESTART),
    "cluster_http_advertise": ("other", RESTART),
    "cluster_peers_bind": ("127.0.0.1:1", RESTART),
    "cluster_peers_advertise": ("other", RESTART),
    "cluster_secret_file": ("other", RESTART),
    "cluster_shards": (1, RESTART),
    "cluster_replicas": (5, RESTART),
    "cluster_min_in_sync": (1, RESTART),
    "cluster_lease": (1.0, RESTART),
    "cluster_grace": (5.0, RESTART),
    "cluster_replace_after": (1.0, RESTART),
    "cluster_replicate": ("durable", RESTART),
    "memory_watermark": (0.1, RELOADED),
    "memory_budget": (0.1, RESTART),
    "disk_free_limit": (1, RELOADED),
    "consumer_timeout": (1, RESTART),
    "sync": ("none", RESTART),
    "segment_bytes": (4096, RESTART),
    "stream_segment_bytes": (4096, RESTART),
    "open_files_max": (16, RESTART),
    "receive_buffer_bytes": (1, RESTART),
    "events_stream": (True, RESTART),
    "events_sample": (1, RESTART),
    "otel_endpoint": ("http://127.0.0.1:1", RESTART),
    "loopback_users": (("other",), RESTART),
    "login_failures_free": (1, RESTART),
    "login_delay_max": (1, RESTART),
    "auth_backends": (("other",), RESTART),
    "oauth2": (OAuth2Settings(resource_server_id="other"), RESTART),
    "http_cors_origins": (("https://a.example",), RESTART),
    "http_cors_max_age": (1, RESTART),
    "audit_log": ("other.log", RESTART),
    "vhosts": (("/", "other"), RELOADED),
    "users": ((GUEST, user("other")), RELOADED),
    "policies": ((commands.PutPolicy(vhost="/", name="p", pattern="", definition=LENGTH),), RELOADED),
    "operator_policies": (
        (commands.PutPolicy(vhost="/", name="p", pattern="", definition=LENGTH, operator=True),),
        RELOADED,
    ),
    "vhost_limits": ((commands.SetVhostLimits(vhost="/", max_queues=1),), RELOADED),
    "shovels": ((StaticShovel(name="s", definition=SHOVEL),), RELOADED),
}


async def test_log_says_of_every_setting_whether_it_was_reloaded_or_needs_a_restart(
    tmp_path: Path, certificates: Certificates, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates.issue("other", "localhost")
    (tmp_path / "key.pem").write_bytes(certificates.server.read_bytes())
    certificates.revoke()
    monkeypatch.chdir(tmp_path)
    config = Config(
        port=0,
        http_port=HTTP_OFF,
        data_dir=Path("data"),
        users=(GUEST,),
        reload_definitions=True,
        tls_cert="server.pem",
        tls_port=0,
        tls_verify="peer",
        tls_ca="ca.pem",
        tls_crl="crl.pem",
    )
    assert SETTINGS.keys() == {each.name for each in fields(Config)}
    said: dict[str, str] = {}
    async with warren.Broker(config) as broker:
        for name, (value, _) in SETTINGS.items():
            log.clear()
            broker.config = config
            following = replace(config, **{name: value})
            await reload(broker, lambda: following)  # noqa: B023 - it is called before the next round
            [said[name]] = [
                each.getMessage()
                for each in log.records
                if name in vars(each).get("changed", vars(each).get("settings", ()))
            ]
            broker.set_log_level(config.log_level)
    assert said == {name: expected for name, (_, expected) in SETTINGS.items()}
