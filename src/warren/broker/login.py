"""Logging in, over AMQP or HTTP: authenticators are asked in order, and the first that knows the client wins.

The first of them is usually the node's own users (`InternalUsers`). `Logins` is the one way to log in: it
limits attempts (`throttle.py`), and tells subscribers to events of those that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from warren.broker.access import User
from warren.broker.events import AuthenticationFailed, Events
from warren.broker.login_attempts import LoginAttempts
from warren.broker.passwords import PasswordHash, VerifiedPasswords
from warren.broker.throttle import Attempt, Throttle

BEARER = "Bearer"
NAME_CHARACTERS_MAX = 255  # of a user's name, in what is remembered and logged
LOOPBACK_ONLY = "this user can only connect via localhost"


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What a client says of itself, and where it is."""

    protocol: str
    """AMQP or HTTP, as `login_attempts.py` names them."""
    mechanism: str
    """PLAIN, AMQPLAIN or EXTERNAL over AMQP; Basic or Bearer over HTTP."""
    user: str
    """Empty if only the secret can tell."""
    secret: bytes | None = field(repr=False)
    """A password or a token; None if the client's certificate was verified, and names the user."""
    address: str
    """The client's address, without its port."""
    is_loopback: bool
    """Whether the client is on this machine."""
    source: str
    """The connection, as the log names it."""


@dataclass(frozen=True)
class Identity:
    """A client that is let in."""

    user: User
    expires_ms: int | None = None
    """The time of day at which the credentials end, in milliseconds; None if they do not."""


@dataclass(frozen=True)
class Refusal:
    """A client that is not let in. The reason is for the log; the client is not told."""

    reason: str


Outcome: TypeAlias = Identity | Refusal
Check: TypeAlias = Callable[[Credentials, Callable[[Outcome], None]], None]
"""An authenticator, as the model knows it: it calls back with the outcome, now or later, and once."""


class InternalUsers:
    """The node's own users, with their passwords."""

    def __init__(
        self, users: Mapping[str, User], passwords: VerifiedPasswords, loopback_users: Container[str]
    ) -> None:
        self.users = users
        self.passwords = passwords
        self.loopback_users = loopback_users  # who may only log in from this machine

    def __call__(self, credentials: Credentials, done: Callable[[Outcome], None]) -> None:
        name, password = credentials.user, credentials.secret
        if credentials.mechanism == BEARER:
            done(Refusal("a bearer token is no password"))
        elif password is None:
            done(self._certified(name))
        else:
            stored, refusal = self._expected(credentials)
            if self.passwords.knows(name, stored, password):
                done(self._outcome(credentials, right=True, refusal=refusal))
                return
            self.passwords.verify(
                name, stored, password, lambda right: done(self._outcome(credentials, right, refusal))
            )

    def _expected(self, credentials: Credentials) -> tuple[PasswordHash, str]:
        """The hash to compare a password with, and the reason to log if they differ.

        For a user who cannot log in with any password it is the decoy. So the refusal takes as long as any
        other, and does not tell whether the user exists or the password was right.
        """
        user = self.users.get(credentials.user)
        if user is None or user.password is None:
            return self.passwords.decoy, "unknown user, or one without a password"
        if credentials.user in self.loopback_users and not credentials.is_loopback:
            return self.passwords.decoy, LOOPBACK_ONLY
        return user.password, "wrong password"

    def _certified(self, name: str) -> Outcome:
        """The TLS handshake has proved who the client is, so there is no password. The user has to exist."""
        user = self.users.get(name)
        return Refusal("the client's certificate names an unknown user") if user is None else Identity(user)

    def _outcome(self, credentials: Credentials, right: bool, refusal: str) -> Outcome:
        user = self.users.get(credentials.user)
        if not right:
            return Refusal(refusal)
        return Refusal("unknown user") if user is None else Identity(user)


class Logins:
    """Decides who is let in. `checks` are asked in order; the server adds to them as it is configured."""

    def __init__(
        self, internal: InternalUsers, throttle: Throttle, attempts: LoginAttempts, events: Events
    ) -> None:
        self.internal = internal
        self.attempts = attempts  # counts them
        self.throttle = throttle
        self.events = events
        self.checks: tuple[Check, ...] = (internal,)

    def attempt(
        self, credentials: Credentials, answer: Callable[[Outcome], None], is_wanted: Callable[[], bool]
    ) -> None:
        """Call `answer` with the outcome, now or later; or never, if `is_wanted` says that nobody waits."""
        self.throttle.enter(_Login(self, credentials, answer, is_wanted))


class _Login(Attempt):
    """One client that logs in."""

    def __init__(
        self,
        logins: Logins,
        credentials: Credentials,
        answer: Callable[[Outcome], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        super().__init__(credentials.address, credentials.user[:NAME_CHARACTERS_MAX])
        self.logins = logins
        self.credentials = credentials
        self.answer = answer  # called with the outcome
        self.still_wanted = is_wanted  # says whether the client waits for it
        self.left = list(logins.checks)  # to be asked yet
        self.reasons: list[str] = []  # of those who refused

    def is_wanted(self) -> bool:
        return self.still_wanted()

    def go(self) -> None:
        if self.left:
            self.left.pop(0)(self.credentials, self._checked)
        else:
            self._refuse("; ".join(self.reasons))

    def _checked(self, outcome: Outcome) -> None:
        if isinstance(outcome, Refusal):
            self.reasons.append(outcome.reason)
            self.go()
        elif outcome.user.name in self.logins.internal.loopback_users and not self.credentials.is_loopback:
            self._refuse(LOOPBACK_ONLY)
        else:
            self.logins.throttle.left(self, success=True)
            self._count(outcome.user.name, succeeded=True)
            self.answer(outcome)

    def _refuse(self, reason: str) -> None:
        self.logins.throttle.left(self, success=False)
        self._count(self.user, succeeded=False)
        self.logins.events.emit(AuthenticationFailed(self.credentials.source, self.user, reason))
        self.answer(Refusal(reason))

    def _count(self, user: str, *, succeeded: bool) -> None:
        self.logins.attempts.note(
            self.credentials.protocol, self.credentials.address, user, succeeded=succeeded
        )
