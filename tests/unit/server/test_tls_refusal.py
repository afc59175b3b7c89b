"""Clients that are refused in the TLS handshake are told why by an alert; on either event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any

import pytest

import warren
from tests.support.certificates import Certificates
from tests.support.frames import PROTOCOL_HEADER
from tests.unit.server.conftest import Run, tls_port, until, with_tls
from warren.server import doorway

ONLY_NEW: dict[str, Any] = {"tls_versions": ("tlsv1.3",)}
PROTOCOL_VERSION_ALERT = bytes([21, 3, 3, 0, 2, 2, 70])


def old_client(certificates: Certificates) -> ssl.SSLContext:
    context = certificates.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def stranger(certificates: Certificates) -> ssl.SSLContext:
    """A client whose certificate is signed by somebody else."""
    elsewhere = certificates.directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return certificates.context(Certificates(elsewhere).client("stranger"))


async def talk(port: int, context: ssl.SSLContext) -> None:
    """With TLS 1.3 a client takes itself for let in, and learns of its refusal when it reads."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    with contextlib.closing(writer):
        writer.write(PROTOCOL_HEADER)
        await reader.read()


@pytest.mark.parametrize(
    ("make_context", "settings", "alert", "logged"),
    [
        (old_client, ONLY_NEW, "TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"),
        (
            Certificates.context,
            {"tls_verify": "require"},
            "TLSV13_ALERT_CERTIFICATE_REQUIRED",
            "PEER_DID_NOT_RETURN_A_CERTIFICATE",
        ),
        (
            stranger,
            {"tls_verify": "peer"},
            "TLSV1_ALERT_UNKNOWN_CA",
            "the client's certificate: unable to get local issuer certificate",
        ),
    ],
    ids=["version", "no certificate", "unknown authority"],
)
def test_refused_client_is_told_why_by_an_alert_and_so_is_the_log(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    make_context: Callable[[Certificates], ssl.SSLContext],
    settings: dict[str, Any],
    alert: str,
    logged: str,
) -> None:
    async def scenario(broker: warren.Broker) -> None:
        with pytest.raises(ssl.SSLError) as refused:
            await talk(tls_port(broker), make_context(certificates))
        assert refused.value.reason == alert
        await until(lambda: "client not let in" in caplog.text)

    caplog.set_level(logging.INFO, "warren")
    run(scenario, **with_tls(certificates, tls_ca=str(certificates.ca), **settings))
    (record,) = [each for each in caplog.records if each.getMessage() == "client not let in"]
    assert vars(record)["reason"] == logged


def test_refused_client_that_stays_is_bounded_in_time(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: warren.Broker) -> None:
        outgoing = ssl.MemoryBIO()
        tls = old_client(certificates).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        reader, writer = await asyncio.open_connection("127.0.0.1", tls_port(broker))
        writer.write(outgoing.read())
        assert await reader.readexactly(len(PROTOCOL_VERSION_ALERT)) == PROTOCOL_VERSION_ALERT
        writer.write(bytes(100_000))
        assert await reader.read() == b""
        writer.close()
        await until(lambda: broker.descriptors.others() == 0)

    monkeypatch.setattr(doorway, "WELCOME_SECONDS_MAX", 0.2)
    run(scenario, **with_tls(certificates, **ONLY_NEW))
