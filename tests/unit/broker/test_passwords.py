from __future__ import annotations

import base64

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, add_user, make_node, quick_hash
from warren.amqp import methods as m
from warren.broker import commands, passwords
from warren.broker.node import Node
from warren.broker.passwords import PasswordHash, VerifiedPasswords, hash_password
from warren.session.state import State

# RabbitMQ's documentation: user "test12", the salt 90 8D C6 0A, SHA-256.
RABBIT_DOCUMENTED = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"

# printf 'saltpassword' | sha256sum, sha512sum, md5sum
SHA256 = "13601bda4ea78e55a07b98866d2be6be0744e3866f13c00c811cab608a28f322"
SHA512 = (
    "2908d2c28dfc047741fc590a026ffade237ab2ba7e1266f010fe49bde548b598"
    "7a534a86655a0d17f336588e540cd66f67234b152bbb645b4bb85758a1325d64"
)
MD5 = "67a1e09bb1f83f5007dc119c14d663aa"


def salted(digest: str) -> str:
    return base64.b64encode(b"salt" + bytes.fromhex(digest)).decode()


GOLDEN = [
    PasswordHash("rabbit_password_hashing_sha256", salted(SHA256)),
    PasswordHash("rabbit_password_hashing_sha512", salted(SHA512)),
    PasswordHash("rabbit_password_hashing_md5", salted(MD5)),
    hash_password("password", b"0123456789abcdef"),
]


@pytest.mark.parametrize("stored", GOLDEN, ids=lambda stored: stored.algorithm)
def test_right_password_and_only_that_is_verified(stored: PasswordHash) -> None:
    assert stored.verify(b"password")
    for wrong in (b"", b"Password", b"password ", b"passwor"):
        assert not stored.verify(wrong)


def test_hash_of_rabbitmqs_documentation_is_verified() -> None:
    assert PasswordHash("rabbit_password_hashing_sha256", RABBIT_DOCUMENTED).verify(b"test12")


def test_own_hash_is_scrypt_and_differs_by_salt() -> None:
    first, second = hash_password("password", b"a" * 16), hash_password("password", b"b" * 16)
    assert first.algorithm == "scrypt"
    assert first.value != second.value
    assert first == hash_password("password", b"a" * 16)


@pytest.mark.parametrize("algorithm", ["", "sha256", "rabbit_password_hashing_sha1"])
def test_unknown_algorithm_is_refused(algorithm: str) -> None:
    with pytest.raises(ValueError, match="unknown password hash"):
        PasswordHash(algorithm, salted(MD5))


@pytest.mark.parametrize("value", ["not base64!", "abc"])
def test_hash_that_is_not_base64_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        PasswordHash("scrypt", value)


def test_empty_hash_verifies_no_password() -> None:
    assert not PasswordHash("rabbit_password_hashing_sha256", "").verify(b"")


def test_verified_password_is_known_until_the_hash_changes() -> None:
    verified, stored = VerifiedPasswords(b"key", FakeWorld()), GOLDEN[0]
    assert not verified.knows("me", stored, b"password")
    verified.remember("me", stored, b"password")
    assert verified.knows("me", stored, b"password")
    assert not verified.knows("me", stored, b"other")
    assert not verified.knows("you", stored, b"password")
    assert not verified.knows("me", GOLDEN[1], b"password")


def test_passwords_are_not_kept_in_clear() -> None:
    verified = VerifiedPasswords(b"key", FakeWorld())
    verified.remember("me", GOLDEN[0], b"password")
    assert b"password" not in b"".join(verified.digests.values())


def test_verified_passwords_are_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "REMEMBERED_MAX", 2)
    verified = VerifiedPasswords(b"key", FakeWorld())
    for user in ("a", "b", "c"):
        verified.remember(user, GOLDEN[0], b"password")
    assert [user for user in "abc" if verified.knows(user, GOLDEN[0], b"password")] == ["b", "c"]


def test_second_connection_with_a_verified_password_needs_no_thread() -> None:
    world = FakeWorld()
    node = make_node(world)
    FakeClient(node).open()
    again = FakeClient(node)
    again.greet()
    again.authenticate()
    assert not world.threads
    again.tune()


def test_changed_password_is_verified_anew() -> None:
    world = FakeWorld()
    node = make_node(world)
    add_user(node, "me")
    FakeClient(node).open("me")
    node.execute(commands.PutUser(name="me", password=quick_hash("new")))
    again = FakeClient(node)
    again.greet()
    again.authenticate("me", "me")
    assert world.threads


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passwords that were hashed by scrypt."""
    hashed: list[bytes] = []
    scrypt = passwords._scrypt

    def count(password: bytes, salt: bytes) -> bytes:
        hashed.append(password)
        return scrypt(password, salt)

    monkeypatch.setattr(passwords, "_scrypt", count)
    return hashed


def node_of_all_kinds_of_users() -> Node:
    node = make_node(FakeWorld())
    node.execute(commands.PutUser(name="scrypt", password=hash_password("right", bytes(16))))
    node.execute(commands.PutUser(name="rabbit", password=GOLDEN[0]))
    node.execute(commands.PutUser(name="without", password=None))
    return node


@pytest.mark.parametrize(
    ("user", "is_loopback"),
    [("scrypt", True), ("rabbit", True), ("without", True), ("nobody", True), ("guest", False)],
)
def test_every_refusal_costs_one_slow_hash(hashes: list[bytes], user: str, is_loopback: bool) -> None:
    """Otherwise the time of a refusal would tell which users exist, and how their passwords are hashed."""
    client = FakeClient(node_of_all_kinds_of_users(), is_loopback=is_loopback)
    client.greet()
    hashes.clear()
    client.authenticate(user, "wrong")
    assert client.connection.state is State.AUTHENTICATING
    client.world.run()
    assert hashes == [b"wrong"]
    (_start, close) = client.methods(0)
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 403


def test_right_password_of_a_user_from_elsewhere_costs_the_same_as_a_wrong_one(hashes: list[bytes]) -> None:
    node = make_node(FakeWorld())
    FakeClient(node).open()  # now the password is remembered
    hashes.clear()
    for password in ("guest", "wrong"):
        client = FakeClient(node, is_loopback=False)
        client.greet()
        client.authenticate("guest", password)
        client.world.run()
        assert [type(method) for method in client.methods(0)] == [m.ConnectionStart, m.ConnectionClose]
    assert hashes == [b"guest", b"wrong"]


def test_decoy_matches_no_password_and_differs_by_key() -> None:
    decoy = passwords.decoy(b"key")
    assert decoy != passwords.decoy(b"other")
    assert decoy.algorithm == hash_password("", bytes(16)).algorithm
    assert len(decoy.value) == len(hash_password("", bytes(16)).value)
    assert not any(map(decoy.verify, (b"", b"decoy", b"key")))


def test_login_whose_hashing_fails_is_refused_and_the_next_one_is_tried_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = make_node(FakeWorld())
    world = node.world
    assert isinstance(world, FakeWorld)

    def fail(_self: PasswordHash, _password: bytes) -> bool:
        raise MemoryError("no room to hash in")

    with monkeypatch.context() as patch:
        patch.setattr(PasswordHash, "verify", fail)
        clients = [FakeClient(node), FakeClient(node)]
        for client in clients:
            client.greet()
            client.authenticate()
        world.run()
    for client in clients:
        close = client.methods(0)[-1]
        assert isinstance(close, m.ConnectionClose)
        assert close.reply_code == 403
        assert client.link.is_reading
    assert [type(error) for error in world.errors] == [MemoryError]
    FakeClient(node).open()


def test_one_who_fails_to_take_the_answer_keeps_nobody_else_waiting() -> None:
    world = FakeWorld()
    verified = VerifiedPasswords(b"key", world)
    told: list[bool] = []

    def fail(_right: bool) -> None:
        raise ValueError("mine")

    verified.verify("me", GOLDEN[0], b"password", fail)
    verified.verify("me", GOLDEN[0], b"password", told.append)
    world.run()
    assert told == [True]
    assert [str(error) for error in world.errors] == ["mine"]
