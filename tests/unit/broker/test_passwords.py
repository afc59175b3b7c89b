from __future__ import annotations

import base64

import pytest

from tests.support.fake_client import FakeClient
from tests.support.fakes import FakeWorld, add_user, make_node, quick_hash
from warren.broker import commands, passwords
from warren.broker.passwords import PasswordHash, VerifiedPasswords, hash_password

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
    verified, stored = VerifiedPasswords(b"key", FakeWorld().in_thread), GOLDEN[0]
    assert not verified.knows("me", stored, b"password")
    verified.remember("me", stored, b"password")
    assert verified.knows("me", stored, b"password")
    assert not verified.knows("me", stored, b"other")
    assert not verified.knows("you", stored, b"password")
    assert not verified.knows("me", GOLDEN[1], b"password")


def test_passwords_are_not_kept_in_clear() -> None:
    verified = VerifiedPasswords(b"key", FakeWorld().in_thread)
    verified.remember("me", GOLDEN[0], b"password")
    assert b"password" not in b"".join(verified.digests.values())


def test_verified_passwords_are_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "REMEMBERED_MAX", 2)
    verified = VerifiedPasswords(b"key", FakeWorld().in_thread)
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
