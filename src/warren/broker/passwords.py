"""Password hashes: our own by scrypt, and RabbitMQ's salted ones, which are verified as they are.

Hashing is slow on purpose, so it is done in a thread. A connection whose password was verified a moment ago
does not wait for that again: `VerifiedPasswords` remembers a digest of each right password, under a key that
only this process knows. When many clients bring the same password at once, as they do after a restart, it is
verified once for all of them.

The time that a refusal takes must not tell whether the user exists. So every refusal costs one scrypt hash.
For a user that does not exist or has no password, a decoy hash is verified, which no password matches.
RabbitMQ's hashes are quick; if one does not match, the decoy is verified as well.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_PARALLEL = 2**14, 8, 1
SALT_BYTES = 16
DIGEST_BYTES = 32
RABBIT_SALT_BYTES = 4
REMEMBERED_MAX = 10_000
RABBIT_SHA256 = "rabbit_password_hashing_sha256"  # RabbitMQ's default
RABBIT_MD5 = "rabbit_password_hashing_md5"  # of versions before 3.6
RABBIT_ALGORITHMS = {
    RABBIT_SHA256: "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    RABBIT_MD5: "md5",
}
SCRYPT = "scrypt"
T = TypeVar("T")


class Threads(Protocol):
    """The part of `World` that is needed here. `in_thread` calls either `done` or `failed`."""

    def in_thread(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None: ...
    def report(self, error: Exception) -> None: ...


@dataclass(frozen=True)
class PasswordHash:
    """An algorithm's name (RabbitMQ's, or `scrypt`) and base64 of salt and digest."""

    algorithm: str
    value: str = field(repr=False)  # a secret as well: who has it can try passwords at leisure

    def __post_init__(self) -> None:
        if self.algorithm != SCRYPT and self.algorithm not in RABBIT_ALGORITHMS:
            known = ", ".join((SCRYPT, *RABBIT_ALGORITHMS))
            raise ValueError(f"unknown password hash '{self.algorithm}': expected one of {known}")
        base64.b64decode(self.value, validate=True)

    def verify(self, password: bytes) -> bool:
        """Slow: not for the event loop."""
        raw = base64.b64decode(self.value)
        if self.algorithm == SCRYPT:
            return hmac.compare_digest(raw[SALT_BYTES:], _scrypt(password, raw[:SALT_BYTES]))
        made = _rabbit_digest(self.algorithm, password, raw[:RABBIT_SALT_BYTES])
        return hmac.compare_digest(raw[RABBIT_SALT_BYTES:], made)


def hash_password(password: str, salt: bytes) -> PasswordHash:
    """Slow: not for the event loop."""
    raw = salt + _scrypt(password.encode(), salt)
    return PasswordHash(SCRYPT, base64.b64encode(raw).decode())


def rabbit_hash(algorithm: str, password: str, salt: bytes) -> PasswordHash:
    """A hash that RabbitMQ knows as well. ValueError if there is no such algorithm."""
    if algorithm not in RABBIT_ALGORITHMS:
        raise ValueError(
            f"unknown password hash '{algorithm}': expected one of {', '.join(RABBIT_ALGORITHMS)}"
        )
    raw = salt + _rabbit_digest(algorithm, password.encode(), salt)
    return PasswordHash(algorithm, base64.b64encode(raw).decode())


def decoy(key: bytes) -> PasswordHash:
    """A hash that no password matches, and that takes as long to verify as a real one."""
    raw = hashlib.blake2b(b"decoy", digest_size=SALT_BYTES + DIGEST_BYTES, key=key).digest()
    return PasswordHash(SCRYPT, base64.b64encode(raw).decode())


def _rabbit_digest(algorithm: str, password: bytes, salt: bytes) -> bytes:
    return hashlib.new(RABBIT_ALGORITHMS[algorithm], salt + password).digest()


def _scrypt(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=SCRYPT_COST, r=SCRYPT_BLOCK, p=SCRYPT_PARALLEL, dklen=DIGEST_BYTES
    )


class VerifiedPasswords:
    """Remembers passwords that were right lately, as keyed digests. They are remembered under the user's
    hash, so a new hash makes the old password unknown.
    """

    def __init__(self, key: bytes, threads: Threads) -> None:
        self.key = key  # of the digests
        self.threads = threads
        self.decoy = decoy(key)  # verified for a user that has no password, or does not exist
        self.digests: OrderedDict[tuple[str, PasswordHash], bytes] = OrderedDict()
        self.waiting: dict[tuple[str, PasswordHash, bytes], list[Callable[[bool], None]]] = {}  # for a thread

    def knows(self, user: str, stored: PasswordHash, password: bytes) -> bool:
        digest = self.digests.get((user, stored))
        return digest is not None and hmac.compare_digest(digest, self._digest(password))

    def verify(self, user: str, stored: PasswordHash, password: bytes, done: Callable[[bool], None]) -> None:
        """Verify a password in a thread, and call back with the result: False if the thread fails."""
        attempt = (user, stored, self._digest(password))
        if attempt in self.waiting:
            self.waiting[attempt].append(done)
            return
        self.waiting[attempt] = [done]

        def finish(right: bool) -> None:
            if right:
                self.remember(user, stored, password)
            for callback in self.waiting.pop(attempt):
                try:
                    callback(right)
                except Exception as error:  # noqa: BLE001 - the others wait for an answer as well
                    self.threads.report(error)

        self.threads.in_thread(lambda: self._matches(stored, password), finish, lambda _error: finish(False))

    def _matches(self, stored: PasswordHash, password: bytes) -> bool:
        """Slow: not for the event loop. Equally slow for every wrong password."""
        if stored.verify(password):
            return True
        return stored.algorithm != SCRYPT and self.decoy.verify(password)

    def remember(self, user: str, stored: PasswordHash, password: bytes) -> None:
        self.digests[user, stored] = self._digest(password)
        if len(self.digests) > REMEMBERED_MAX:
            self.digests.popitem(last=False)

    def _digest(self, password: bytes) -> bytes:
        return hashlib.blake2b(password, key=self.key).digest()
