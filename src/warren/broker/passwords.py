"""Password hashes: our own by scrypt, and RabbitMQ's salted ones, which are verified as they are.

Hashing is slow by intention, so it is done in a thread. A connection opened with a password that was
verified a moment ago need not wait for it again: `VerifiedPasswords` remembers a keyed digest of what
was right, under a key that only this process knows. Of many who bring the same one at once, as all clients
do after a restart, one is verified and the others wait for that.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_PARALLEL = 2**14, 8, 1
SALT_BYTES = 16
RABBIT_SALT_BYTES = 4
REMEMBERED_MAX = 10_000
RABBIT_ALGORITHMS = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
SCRYPT = "scrypt"
InThread: TypeAlias = Callable[[Callable[[], bool], Callable[[bool], None]], None]


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


def _scrypt(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=SCRYPT_COST, r=SCRYPT_BLOCK, p=SCRYPT_PARALLEL, dklen=32)


class VerifiedPasswords:
    """Passwords that were right lately, as keyed digests; changing a user's hash forgets them by itself."""

    def __init__(self, key: bytes, in_thread: InThread) -> None:
        self.key = key
        self.in_thread = in_thread
        self.digests: OrderedDict[tuple[str, PasswordHash], bytes] = OrderedDict()
        self.waiting: dict[tuple[str, PasswordHash, bytes], list[Callable[[bool], None]]] = {}

    def knows(self, user: str, stored: PasswordHash, password: bytes) -> bool:
        digest = self.digests.get((user, stored))
        return digest is not None and hmac.compare_digest(digest, self._digest(password))

    def verify(self, user: str, stored: PasswordHash, password: bytes, done: Callable[[bool], None]) -> None:
        """Find out in a thread, and then call back."""
        attempt = (user, stored, self._digest(password))
        if attempt in self.waiting:
            self.waiting[attempt].append(done)
            return
        self.waiting[attempt] = [done]

        def finish(right: bool) -> None:
            if right:
                self.remember(user, stored, password)
            for callback in self.waiting.pop(attempt):
                callback(right)

        self.in_thread(lambda: stored.verify(password), finish)

    def remember(self, user: str, stored: PasswordHash, password: bytes) -> None:
        self.digests[user, stored] = self._digest(password)
        if len(self.digests) > REMEMBERED_MAX:
            self.digests.popitem(last=False)

    def _digest(self, password: bytes) -> bytes:
        return hashlib.blake2b(password, key=self.key).digest()
