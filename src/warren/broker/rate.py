"""Rate limits of users: so many messages and bytes a second; a client that is over the rate has to wait.

Nothing is refused. What a client has taken is charged afterwards, to a token bucket that may go below zero:
the debt says how long the client has to wait. A bucket saves up tokens for `BURST_SECONDS` at most.
"""

from __future__ import annotations

BURST_SECONDS = 1.0
MESSAGE_BYTES_MIN = 50  # what the smallest message takes on the wire, published or delivered
AT_ONCE_BYTES_MIN = 256  # bounds of `Allowance.bytes_at_once`
AT_ONCE_BYTES_MAX = 2**31 - 1


class Rate:
    """A bucket of tokens, full at first."""

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self.tokens = self.tokens_max = per_second * BURST_SECONDS
        self.at = now  # when the tokens were last counted

    def charge(self, amount: int, now: float) -> float:
        """Take this many tokens; return for how many seconds the client has to wait."""
        saved = self.tokens + (now - self.at) * self.per_second
        self.tokens = min(saved, self.tokens_max) - amount
        self.at = now
        return max(-self.tokens / self.per_second, 0.0)


class Allowance:
    """How many messages and bytes a second a user may send, or get. All its connections share one."""

    def __init__(self, messages: int | None, octets: int | None, now: float) -> None:
        self.messages = None if messages is None else Rate(messages, now)
        self.octets = None if octets is None else Rate(octets, now)

    def charge(self, messages: int, octets: int, now: float) -> float:
        of_messages = 0.0 if self.messages is None else self.messages.charge(messages, now)
        of_octets = 0.0 if self.octets is None else self.octets.charge(octets, now)
        return max(of_messages, of_octets)

    @property
    def bytes_at_once(self) -> int:
        """How many bytes a client may read or write before it is charged: no more than the bucket holds, so
        that nobody gets far above the rate.
        """
        bounds = []
        if self.messages is not None:
            bounds.append(self.messages.tokens_max * MESSAGE_BYTES_MIN)
        if self.octets is not None:
            bounds.append(self.octets.tokens_max)
        return min(max(int(min(bounds)), AT_ONCE_BYTES_MIN), AT_ONCE_BYTES_MAX)


def allowance(messages: int | None, octets: int | None, now: float) -> Allowance | None:
    """An allowance with these limits; None if neither is limited."""
    return None if messages is None and octets is None else Allowance(messages, octets, now)
