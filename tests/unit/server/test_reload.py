"""SIGHUP: what can change while the broker runs does, and the log names the rest."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import warren
from tests.support.certificates import Certificates
from tests.support.frames import PROTOCOL_HEADER
from tests.support.http_api import GUEST, user
from warren import events
from warren.server.config import Config
from warren.server.config_error import ConfigError
from warren.server.listeners import AMQPS, HTTPS, OpenPort
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


async def test_others_may_follow_a_reload(broker: warren.Broker) -> None:
    followed: list[str] = []
    broker.on_reload.append(lambda: followed.append("reopened"))
    await reload(broker, lambda: broker.config)
    assert followed == ["reopened"]


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
