"""What the HTTP API tells of TLS: connections, listeners, and certificates that expire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aio_pika
import aiohttp
import pytest

from tests.support.certificates import Certificates
from tests.support.http_api import USERS, Api, make_broker, user
from warren.server.listeners import AMQP, AMQPS, HTTP, HTTPS

EXPIRATION = "/api/health/checks/certificate-expiration"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def api(tmp_path: Path, certificates: Certificates) -> AsyncIterator[Api]:
    broker = make_broker(
        tmp_path / "data",
        users=(*USERS, user("owner", read=".*")),
        tls_cert=str(certificates.server),
        tls_ca=str(certificates.ca),
        tls_verify="peer",
        tls_port=0,
        http_tls_port=0,
    )
    async with broker, aiohttp.ClientSession() as session:
        yield Api(broker, session)


async def test_encryption_and_certificate_of_a_connection_are_told(
    api: Api, certificates: Certificates
) -> None:
    [port] = api.broker.listeners.of(AMQPS)
    context = certificates.context(certificates.client("owner"))
    async with await aio_pika.connect(f"amqps://{port.address}/?auth=EXTERNAL", ssl_context=context):
        [found] = (await api.get("/api/connections")).json
    assert (found["user"], found["auth_mechanism"]) == ("owner", "EXTERNAL")
    assert (found["ssl"], found["ssl_protocol"]) == (True, "tlsv1.3")
    assert (found["ssl_key_exchange"], found["ssl_hash"]) == ("any", "aead")
    assert found["ssl_cipher"].startswith(("aes_", "chacha20"))
    assert found["peer_cert_subject"].startswith("CN=owner,")
    assert found["peer_cert_issuer"].startswith("OU=Testing CA")
    assert found["peer_cert_validity"] == "2000-01-01T00:00:00Z - 3000-01-01T00:00:00Z"
    assert (found["port"], found["peer_host"]) == (port.port, "127.0.0.1")


async def test_connection_without_a_certificate_has_none(api: Api, certificates: Certificates) -> None:
    [port] = api.broker.listeners.of(AMQPS)
    url = f"amqps://owner:owner@{port.address}/"
    async with await aio_pika.connect(url, ssl_context=certificates.context()):
        [found] = (await api.get("/api/connections")).json
    assert (found["ssl"], found["auth_mechanism"]) == (True, "PLAIN")
    assert found["peer_cert_subject"] is found["peer_cert_issuer"] is found["peer_cert_validity"] is None


async def test_all_ports_are_told(api: Api) -> None:
    found = (await api.get("/api/overview")).json
    told = [(each["protocol"], each["port"]) for each in found["listeners"]]
    assert told == [
        (name, port.port) for name in (AMQP, AMQPS, HTTP, HTTPS) for port in api.broker.listeners.of(name)
    ]
    assert [each["description"] for each in found["contexts"]] == ["RabbitMQ Management"] * 2
    for name, known in (("amqps", AMQPS), ("amqp%2Fssl", AMQPS), ("https", HTTPS)):
        answer = await api.get(f"/api/health/checks/protocol-listener/{name}")
        assert answer.json == {"status": "ok", "protocol": known}


async def test_certificates_that_stay_valid_are_well(api: Api) -> None:
    assert (await api.get(f"{EXPIRATION}/1/days")).json == {"status": "ok"}


async def test_certificates_that_expire_within_the_time_fail_the_check(
    api: Api, certificates: Certificates
) -> None:
    answer = await api.get(f"{EXPIRATION}/1000/years")
    assert answer.status == 503
    assert (answer.json["status"], answer.json["reason"]) == ("failed", "Certificates expiring")
    assert [each["protocol"] for each in answer.json["expired"]] == [AMQPS, HTTPS]
    told = answer.json["expired"][0]
    assert (told["node"], told["interface"]) == ("warren", "127.0.0.1")
    assert (told["certfile"], told["cacertfile"]) == (str(certificates.server), str(certificates.ca))
    assert told["certfile_expires_on"] == told["cacertfile_expires_on"] == ["3000-01-01 00:00:00"]


async def test_certificate_of_the_broker_counts_not_the_file_of_today(tmp_path: Path) -> None:
    """A file that was replaced is not in use before SIGHUP."""
    certificates = Certificates(tmp_path)
    soon = datetime.now(UTC) + timedelta(days=3)
    path = tmp_path / "soon.pem"
    certificates.authority.issue_cert(
        "localhost", not_after=soon
    ).private_key_and_cert_chain_pem.write_to_path(path)
    broker = make_broker(tmp_path / "data", tls_cert=str(path), tls_port=0)
    async with broker, aiohttp.ClientSession() as session:
        path.write_bytes(certificates.server.read_bytes())
        api = Api(broker, session)
        assert (await api.get(f"{EXPIRATION}/2/days")).status == 200
        answer = await api.get(f"{EXPIRATION}/1/weeks")
    assert answer.status == 503
    [told] = answer.json["expired"]
    assert told["certfile_expires_on"] == [soon.strftime("%Y-%m-%d %H:%M:%S")]
    assert (told["cacertfile"], told["cacertfile_expires_on"]) == ("", [])
