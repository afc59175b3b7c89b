"""EXTERNAL: a client's certificate says who logs in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.fake_client import FakeClient, make_peer
from tests.support.fakes import FakeWorld, add_user, make_node
from tests.support.frames import start_ok
from warren.amqp import methods as m
from warren.broker import commands
from warren.broker.events import AuthenticationFailed
from warren.broker.node import Node
from warren.session.peer import Certificate, Encryption, Peer, is_loopback


def certified(user: str, *, is_loopback: bool = True) -> Peer:
    certificate = Certificate(subject="CN=x", issuer="CN=ca", validity="", user_name=user)
    encryption = Encryption(
        protocol="tlsv1.3", key_exchange="any", cipher="aes_256_gcm", hash="aead", certificate=certificate
    )
    return replace(make_peer(is_loopback=is_loopback), encryption=encryption)


def client_with(node: Node, peer: Peer) -> FakeClient:
    client = FakeClient(node, peer=peer)
    client.greet()
    return client


def offered(client: FakeClient) -> list[bytes]:
    (start,) = client.methods(0)
    assert isinstance(start, m.ConnectionStart)
    return start.mechanisms.split()


def log_in(client: FakeClient) -> list[m.Method]:
    client.methods(0)
    client.send(replace(start_ok(), mechanism="EXTERNAL", response=b""), 0)
    return client.methods(0)


@pytest.fixture
def node() -> Node:
    node = make_node(FakeWorld())
    add_user(node, "worker")
    return node


def test_it_is_offered_to_clients_whose_certificate_names_a_user(node: Node) -> None:
    assert offered(client_with(node, certified("worker"))) == [b"PLAIN", b"AMQPLAIN", b"EXTERNAL"]


@pytest.mark.parametrize("peer", [make_peer(), certified("")])
def test_it_is_not_offered_to_others_and_refused_if_they_try(node: Node, peer: Peer) -> None:
    assert offered(client_with(node, peer)) == [b"PLAIN", b"AMQPLAIN"]
    (close,) = log_in(client_with(node, peer))
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (
        530,
        "NOT_ALLOWED - unknown authentication mechanism 'EXTERNAL'",
    )


def test_user_of_the_certificate_is_logged_in(node: Node) -> None:
    client = client_with(node, certified("worker", is_loopback=False))
    (tune,) = log_in(client)
    assert isinstance(tune, m.ConnectionTune)
    client.tune()
    client.send(m.ConnectionOpen(virtual_host="/"), 0)
    assert isinstance(client.methods(0)[-1], m.ConnectionOpenOk)
    assert client.connection.access.user is node.users["worker"]


def test_user_without_permissions_in_the_vhost_is_refused_there(node: Node) -> None:
    node.execute(commands.PutUser(name="stranger", password=None))
    client = client_with(node, certified("stranger"))
    log_in(client)
    client.tune()
    client.send(m.ConnectionOpen(virtual_host="/"), 0)
    close = client.methods(0)[-1]
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_text == "NOT_ALLOWED - access to vhost '/' refused for user 'stranger'"


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (certified("nobody"), "the client's certificate names an unknown user"),
        (certified("guest", is_loopback=False), "this user can only connect via localhost"),
    ],
)
def test_others_are_refused_and_the_log_says_why(node: Node, peer: Peer, reason: str) -> None:
    failures: list[AuthenticationFailed] = []
    node.events.subscribe(AuthenticationFailed, failures.append)
    (close,) = log_in(client_with(node, peer))
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 403
    assert close.reply_text == (
        "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. "
        "For details see the broker logfile."
    )
    assert [failure.reason for failure in failures] == [reason]


def test_password_still_works_beside_it(node: Node) -> None:
    client = client_with(node, certified("worker"))
    client.methods(0)
    client.authenticate()
    client.world.run_threads()
    assert isinstance(client.methods(0)[-1], m.ConnectionTune)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("192.0.2.1", False),
        ("fe80::1%eth0", False),
        (None, False),
    ],
)
def test_address_of_this_machine_is_known(host: str | None, expected: bool) -> None:
    assert is_loopback(host) is expected
