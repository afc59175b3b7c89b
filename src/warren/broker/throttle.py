"""Limits attempts to log in, by the client's address and by the name of the user.

Each address and each user name has a gate. After some failures the gate closes for a second, after the next
failure for two, then four, and so on. While it is closed, attempts wait. A gate with few failures lets
several attempts be checked at once, one with many failures lets them pass one by one: else a client could
try thousands of passwords before the first of them has failed.

- A success opens the gate of its address. From then on the failures of others, at other addresses, do not
  hold this user up at this address: nobody can lock a user out from elsewhere.
- The gate of a user stays as it is after a success. It opens by itself some time after the last failure.
- Gates and remembered successes are bounded in number; the oldest are forgotten first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from functools import partial

from warren.broker.timers import Timers

FIRST_DELAY_SECONDS = 1.0
FORGET_SECONDS = 900.0  # a gate's failures are forgotten when the last is so long ago
WAIT_SECONDS_MAX = 10.0  # no client waits longer: its handshake ends, or its request
CHECKED_AT_ONCE_MAX = 8  # attempts of one address or user, as long as few have failed
GATES_MAX = 10_000  # of addresses; as many of users
SUCCESSES_MAX = 10_000
DOUBLINGS_MAX = 32


@dataclass
class Gate:
    """What is known of one address, or of one user name."""

    failures: int = 0
    failed_at: float = 0.0
    opens_at: float = 0.0
    checking: int = 0
    """How many attempts have passed, and are not answered yet."""
    waiting: deque[Attempt] = field(default_factory=deque)
    """Attempts that wait until one of those has been answered."""

    def is_idle(self) -> bool:
        return self.checking == 0 and not self.waiting


class Attempt(ABC):
    """One attempt to log in. `user` is empty if only the secret can tell, as with a bearer token."""

    def __init__(self, address: str, user: str) -> None:
        self.address = address
        self.user = user
        self.gates: tuple[Gate, ...] = ()  # the gates that it has passed, until it is answered

    @abstractmethod
    def go(self) -> None:
        """The attempt may be checked now."""

    @abstractmethod
    def is_wanted(self) -> bool:
        """Whether the client still waits for the answer."""


class Throttle:
    """`enter` lets an attempt be checked, perhaps later; `left` says how it ended."""

    def __init__(self, timers: Timers, failures_free: int, delay_seconds_max: float) -> None:
        self.timers = timers
        self.failures_free = failures_free  # that cost no time
        self.delay_seconds_max = delay_seconds_max  # 0: nobody ever waits
        self.addresses: OrderedDict[str, Gate] = OrderedDict()  # those that failed last come last
        self.users: OrderedDict[str, Gate] = OrderedDict()
        self.successes: OrderedDict[tuple[str, str], None] = OrderedDict()  # by address and user

    def enter(self, attempt: Attempt) -> None:
        """Call `attempt.go` when the attempt may be checked: now, if nothing speaks against it; never, if
        the client would have to wait longer than it can.
        """
        if self.delay_seconds_max <= 0:
            attempt.go()
            return
        gates = self._gates_of(attempt)
        for gate in gates:
            if gate.checking >= self._checked_at_once(gate):
                gate.waiting.append(attempt)
                return
        wait = max(gate.opens_at for gate in gates) - self.timers.now()
        if wait > WAIT_SECONDS_MAX:
            self._wake_next(gates)
        elif wait > 0:
            self.timers.call_later(wait, partial(self._enter_again, attempt))
        else:
            self._pass(attempt, gates)
            attempt.go()

    def _pass(self, attempt: Attempt, gates: tuple[Gate, ...]) -> None:
        """Only an attempt that is checked has its gates remembered, so that waiting ones take no memory."""
        self.addresses.setdefault(attempt.address, gates[0])
        if len(gates) > 1:
            self.users.setdefault(attempt.user, gates[1])
        for gate in gates:
            gate.checking += 1
        attempt.gates = gates

    def left(self, attempt: Attempt, *, success: bool) -> None:
        """The attempt was answered."""
        if self.delay_seconds_max <= 0:
            return
        gates, attempt.gates = attempt.gates, ()
        for gate in gates:
            gate.checking -= 1
        if success:
            self._succeeded(attempt)
        else:
            self._failed(attempt)
        self._wake_next(gates)
        self._tidy(self.addresses, attempt.address)
        self._tidy(self.users, attempt.user)

    def seconds_to_wait(self, address: str, user: str) -> float:
        """For how long an attempt would have to wait, as far as is known."""
        now = self.timers.now()
        gates = (self.addresses.get(address), self.users.get(user))
        return max([0.0, *(gate.opens_at - now for gate in gates if gate is not None)])

    def _enter_again(self, attempt: Attempt) -> None:
        if attempt.is_wanted():
            self.enter(attempt)
        else:
            self._wake_next(self._gates_of(attempt))

    def _gates_of(self, attempt: Attempt) -> tuple[Gate, ...]:
        address = self._gate(self.addresses, attempt.address)
        if not attempt.user or (attempt.address, attempt.user) in self.successes:
            return (address,)
        return (address, self._gate(self.users, attempt.user))

    def _gate(self, gates: OrderedDict[str, Gate], key: str) -> Gate:
        gate = gates.get(key) or Gate()
        if gate.failures and self.timers.now() - gate.failed_at > FORGET_SECONDS:
            gate.failures, gate.opens_at = 0, 0.0
        return gate

    def _checked_at_once(self, gate: Gate) -> int:
        return 1 if gate.failures >= self.failures_free else CHECKED_AT_ONCE_MAX

    def _succeeded(self, attempt: Attempt) -> None:
        gate = self._gate(self.addresses, attempt.address)
        gate.failures, gate.opens_at = 0, 0.0
        if attempt.user:
            self.successes[attempt.address, attempt.user] = None
            self.successes.move_to_end((attempt.address, attempt.user))
            if len(self.successes) > SUCCESSES_MAX:
                self.successes.popitem(last=False)

    def _failed(self, attempt: Attempt) -> None:
        now = self.timers.now()
        for gates, key in ((self.addresses, attempt.address), (self.users, attempt.user)):
            if key:
                gate = gates.setdefault(key, self._gate(gates, key))
                gates.move_to_end(key)
                gate.failures += 1
                gate.failed_at = now
                gate.opens_at = now + self._delay(gate.failures)
                if gate.opens_at - now > WAIT_SECONDS_MAX:
                    gate.waiting.clear()

    def _delay(self, failures: int) -> float:
        beyond = failures - self.failures_free
        if beyond < 0:
            return 0.0
        return min(FIRST_DELAY_SECONDS * 2.0 ** min(beyond, DOUBLINGS_MAX), self.delay_seconds_max)

    def _wake_next(self, gates: tuple[Gate, ...]) -> None:
        for gate in gates:
            self._wake(gate)

    def _wake(self, gate: Gate) -> None:
        """Let waiting attempts try again: one of them if the gate is closed for some time, else as many as
        may be checked at once.
        """
        room = self._checked_at_once(gate) - gate.checking
        if gate.opens_at > self.timers.now():
            room = min(room, 1)
        while room > 0 and gate.waiting:
            attempt = gate.waiting.popleft()
            if attempt.is_wanted():
                room -= 1
                self.timers.call_soon(partial(self._enter_again, attempt))

    def _tidy(self, gates: OrderedDict[str, Gate], key: str) -> None:
        """Forget a gate that holds nobody up, and those that failed first if there are too many."""
        gate = gates.get(key)
        if gate is not None and gate.failures == 0 and gate.is_idle():
            del gates[key]
        while len(gates) > GATES_MAX:
            oldest, gate = next(iter(gates.items()))
            if not gate.is_idle():
                return
            del gates[oldest]
