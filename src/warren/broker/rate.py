"""So much a second, and who takes more has to wait.

Nothing is refused: whatever was taken is charged, and if that was more than there is, the debt says how long
it takes until it is paid. As much as for `BURST_SECONDS` is saved up while nothing is taken.
"""

from __future__ import annotations

BURST_SECONDS = 1.0
MESSAGE_BYTES_MIN = 50  # what the smallest one takes on the wire, either way
AT_ONCE_BYTES_MIN = 256
AT_ONCE_BYTES_MAX = 2**31 - 1


class Rate:
    """A bucket of tokens, full at first."""

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self.tokens = self.tokens_max = per_second * BURST_SECONDS
        self.at = now

    def charge(self, amount: int, now: float) -> float:
        """How many seconds it is until this is paid, and all before it."""
        saved = self.tokens + (now - self.at) * self.per_second
        self.tokens = min(saved, self.tokens_max) - amount
        self.at = now
        return max(-self.tokens / self.per_second, 0.0)


class Allowance:
    """How many messages and bytes a second; all connections of a user take from the same."""

    def __init__(self, messages: int | None, octets: int | None, now: float) -> None:
        self.messages = None if messages is None else Rate(messages, now)
        self.octets = None if octets is None else Rate(octets, now)

    def charge(self, messages: int, octets: int, now: float) -> float:
        of_messages = 0.0 if self.messages is None else self.messages.charge(messages, now)
        of_octets = 0.0 if self.octets is None else self.octets.charge(octets, now)
        return max(of_messages, of_octets)

    @property
    def bytes_at_once(self) -> int:
        """What is saved up at most, so that nobody gets far above the rate before it is noticed."""
        bounds = []
        if self.messages is not None:
            bounds.append(self.messages.tokens_max * MESSAGE_BYTES_MIN)
        if self.octets is not None:
            bounds.append(self.octets.tokens_max)
        return min(max(int(min(bounds)), AT_ONCE_BYTES_MIN), AT_ONCE_BYTES_MAX)


def allowance(messages: int | None, octets: int | None, now: float) -> Allowance | None:
    """None if there is no limit to either."""
    return None if messages is None and octets is None else Allowance(messages, octets, now)
