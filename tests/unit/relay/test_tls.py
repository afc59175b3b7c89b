"""Shovels over TLS, with the parameters of RabbitMQ's URIs. The broker there is called `other.example`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

import warren
from tests.support.certificates import Certificates
from tests.support.http_api import GUEST
from tests.unit.relay.yard import Yard
from warren.relay.supervisor import State
from warren.server.listeners import AMQPS
from warren.session.connection import connections_of

NAMED = "server_name_indication=other.example"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
async def yard(tmp_path: Path, certificates: Certificates) -> AsyncIterator[Yard]:
    made = Yard(tmp_path)
    made.there = warren.Broker(
        port=0,
        data_dir=tmp_path / "there",
        users=(GUEST,),
        tls_cert=str(certificates.issue("other", "other.example")),
        tls_ca=str(certificates.ca),
        tls_verify="peer",
        tls_port=0,
    )
    async with made:
        yield made


async def outcome(yard: Yard, query: str) -> str:
    """What becomes of a shovel to there: `running`, or the reason why it is not."""
    ca = yard.directory / "ca.pem"
    port = yard.there.listeners.of(AMQPS)[0].port
    uri = f"amqps://guest:guest@127.0.0.1:{port}/%2F?cacertfile={ca}&{query}"
    yard.shovel(src_uri="amqp://", src_queue="q", dest_uri=uri, dest_queue="q", reconnect_delay=0)
    await yard.until(lambda: yard.status().state is not State.STARTING)
    return yard.status().reason or yard.status().state.value


@pytest.mark.parametrize("query", [NAMED, "server_name_indication=disable", "verify=verify_none"])
async def test_broker_of_another_name_is_trusted_if_the_uri_says_so(yard: Yard, query: str) -> None:
    assert await outcome(yard, query) == "running"


@pytest.mark.parametrize("query", ["", "server_name_indication=third.example"])
async def test_broker_of_another_name_is_not_trusted_otherwise(yard: Yard, query: str) -> None:
    assert (await outcome(yard, query)).startswith("destination: cannot trust 127.0.0.1:")


async def test_certificate_logs_in_in_place_of_a_password(yard: Yard, certificates: Certificates) -> None:
    own = certificates.client("guest")
    assert await outcome(yard, f"{NAMED}&certfile={own}&auth_mechanism=external") == "running"
    [connection] = connections_of(yard.there.node)
    assert connection.mechanism == "EXTERNAL"


async def test_key_may_have_a_password(yard: Yard, certificates: Certificates) -> None:
    """Without it, nobody is asked for one at a terminal."""
    own = certificates.client("guest")
    key = serialization.load_pem_private_key(own.read_bytes(), None)
    locked = yard.directory / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"open sesame"),
        )
    )
    query = f"{NAMED}&certfile={own}&keyfile={locked}"
    assert await outcome(yard, f"{query}&password=open%20sesame") == "running"
    for wrong in ("", "&password=canary"):
        reason = await outcome(yard, query + wrong)
        assert reason.startswith("destination: cannot read certificate and key in ")
        assert "canary" not in reason
