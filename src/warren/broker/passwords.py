"""Password hashes: our own by scrypt, and RabbitMQ's salted ones, which are verified as they are.

Hashing is slow by intention, so it is done in a thread. A connection opened with a password that was
verified a moment ago need not wait for it again: `VerifiedPasswords` remembers a keyed digest of what
was right, under a key that only this process knows. Of many who bring the same one at once, as all clients
do after a restart, one is verified and the others wait for that.

How long a refusal takes must not tell whether there is such a user. So each costs one hash by scrypt: where
there is nothing to compare with, a decoy is verified, which no password matches, and a hash of RabbitMQ's,
which is quick, is followed by the decoy if it did not match.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_PARALLEL = 2**14, 8, 1
SALT_BYTES = 16
DIGEST_BYTES = 32
RABBIT_SALT_BYTES = 4
REMEMBERED_MAX = 10_000
RABBIT_ALGORITHMS = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
SCRYPT = "scrypt"
T = TypeVar("T")


class Threads(Protocol):
    """As the world has them: each piece of work ends with one of the two calls."""

    def in_thread(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None: ...
    def report(self, error: Exception) -> None: ...


@dataclass(frozen=True)
class PasswordHash:
    """An algorithm's name (RabbitMQ's, or `scrypt`) and base64 of salt and digest."""

    algorithm: str
    value: str

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
        salt, digest = raw[:RABBIT_SALT_BYTES], raw[RABBIT_SALT_BYTES:]
        made = hashlib.new(RABBIT_ALGORITHMS[self.algorithm], salt + password).digest()
        return hmac.compare_digest(digest, made)


def hash_password(password: str, salt: bytes) -> PasswordHash:
    """Slow: not for the event loop."""
    raw = salt + _scrypt(password.encode(), salt)
    return PasswordHash(SCRYPT, base64.b64encode(raw).decode())


def decoy(key: bytes) -> PasswordHash:
    """A hash that no password matches, at the cost of one that some password does."""
    raw = hashlib.blake2b(b"decoy", digest_size=SALT_BYTES + DIGEST_BYTES, key=key).digest()
    return PasswordHash(SCRYPT, base64.b64encode(raw).decode())


def _scrypt(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=SCRYPT_COST, r=SCRYPT_BLOCK, p=SCRYPT_PARALLEL, dklen=DIGEST_BYTES
    )


class VerifiedPasswords:
    """Passwords that were right lately, as keyed digests; changing a user's hash forgets them by itself.
    `decoy` is what to verify for a user that has no password, or does not exist.
    """

    def __init__(self, key: bytes, threads: Threads) -> None:
        self.key = key
        self.threads = threads
        self.decoy = decoy(key)
        self.digests: OrderedDict[tuple[str, PasswordHash], bytes] = OrderedDict()
        self.waiting: dict[tuple[str, PasswordHash, bytes], list[Callable[[bool], None]]] = {}

    def knows(self, user: str, stored: PasswordHash, password: bytes) -> bool:
        digest = self.digests.get((user, stored))
        return digest is not None and hmac.compare_digest(digest, self._digest(password))

    def verify(self, user: str, stored: PasswordHash, password: bytes, done: Callable[[bool], None]) -> None:
        """Find out in a thread, and then call back. If that fails, no password was right."""
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
        """Slow: not for the event loop. As slow for every password that is wrong."""
        if stored.verify(password):
            return True
        return stored.algorithm != SCRYPT and self.decoy.verify(password)

    def remember(self, user: str, stored: PasswordHash, password: bytes) -> None:
        self.digests[user, stored] = self._digest(password)
        if len(self.digests) > REMEMBERED_MAX:
            self.digests.popitem(last=False)

    def _digest(self, password: bytes) -> bytes:
        return hashlib.blake2b(password, key=self.key).digest()
