"""Keeps relays running: starts each, starts it again when it breaks, and knows how each does.

A relay that breaks harms nobody: its error is its status, and it is tried again, later each time and never
at the same moment as others.

    starting ──► running ──► terminated ──► starting …

In a cluster it is `elsewhere` while another node is to run it. `look` finds out whether that has changed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from warren.client.errors import ClientError

FIRST_WAIT_SECONDS = 0.5
SPREAD = 0.25  # a wait is so much shorter or longer, by chance
STEADY_SECONDS = 10.0
"""A relay that has run for so long is tried again at once; one that breaks sooner waits longer each time."""


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    TERMINATED = "terminated"
    ELSEWHERE = "elsewhere"


class Relay(Protocol):
    """Anything that carries messages until something breaks."""

    @property
    def reconnect_seconds(self) -> float:
        """The longest wait before it is tried again; 0: it is not."""

    async def run(self, running: Callable[[], None]) -> bool:
        """Raise `ClientError` when something breaks. Return True if it is done for good."""

    def stop_taking(self) -> None:
        """Take no more messages: what is published from now on is not for this relay."""


class Unfit:
    """A relay whose definition makes no sense. It was kept by a version that did not look at it."""

    reconnect_seconds = 0.0

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def run(self, _running: Callable[[], None]) -> bool:
        raise ClientError(self.reason)

    def stop_taking(self) -> None:
        """It never takes any."""


@dataclass
class Status:
    state: State
    since_ms: int
    reason: str = ""  # why it has terminated, or does not run here


def always_here() -> str:
    return ""


class Supervised:
    """A relay, and the task that keeps it running."""

    def __init__(
        self,
        relay: Relay,
        time_ms: Callable[[], int],
        report: Callable[[Exception], None],
        after: asyncio.Task[None] | None = None,
        why_elsewhere: Callable[[], str] = always_here,
    ) -> None:
        self.relay = relay
        self.time_ms = time_ms
        self.report = report  # is told of our own mistakes
        self.why_elsewhere = why_elsewhere  # tells why another node is to run it; nothing if this one is
        self.status = Status(State.STARTING, time_ms())
        self.is_finished = False  # the relay is done for good
        self.is_stopped = False  # it is to run nowhere
        self.attempts = 0  # since it last ran for a while
        self.on_change: Callable[[Supervised], None] | None = None
        self.task: asyncio.Task[None] | None = None  # None while another node is to run it
        self.before: set[asyncio.Task[None]] = set()  # what has to end before it is started
        if after is not None:
            self.before.add(after)
        self.look()

    @property
    def is_here(self) -> bool:
        """Whether this node is to run it."""
        return self.task is not None

    def look(self) -> None:
        """See which node is to run it, and have it run there."""
        if self.is_finished or self.is_stopped:
            return
        why = self.why_elsewhere()
        if not why and self.task is None:
            self.task = asyncio.create_task(self._keep_running())
        elif why:
            self._leave()
            if (self.status.state, self.status.reason) != (State.ELSEWHERE, why):
                self._become(State.ELSEWHERE, why)

    def _leave(self) -> None:
        """Another node is to run it. It ends here as it would for good."""
        if self.task is not None:
            self.relay.stop_taking()
            self.task.cancel()
            self.before.add(self.task)
            self.task.add_done_callback(self.before.discard)
            self.task = None

    async def _keep_running(self) -> None:
        if self.before:
            await asyncio.wait(self.before)
        while not self.is_finished:
            self._become(State.STARTING)
            try:
                self.is_finished = await self.relay.run(self._is_running)
                self._become(State.TERMINATED, "" if self.is_finished else "ended")
            except ClientError as error:
                self._become(State.TERMINATED, str(error))
            except Exception as error:  # noqa: BLE001 - one relay that fails must not end, nor end others
                self.report(error)
                self._become(State.TERMINATED, "failed; the log says why")
            if self.is_finished or not self.relay.reconnect_seconds:
                return
            await asyncio.sleep(self._wait_seconds())

    def _wait_seconds(self) -> float:
        longest = self.relay.reconnect_seconds
        wait = min(longest, FIRST_WAIT_SECONDS * 2**self.attempts) if self.attempts < 20 else longest  # noqa: PLR2004 - so that the power stays small
        self.attempts += 1
        return wait * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311 - no secret

    def _is_running(self) -> None:
        self._become(State.RUNNING)

    def _become(self, state: State, reason: str = "") -> None:
        now_ms = self.time_ms()
        if self.status.state is State.RUNNING and now_ms - self.status.since_ms >= 1000 * STEADY_SECONDS:
            self.attempts = 0
        self.status = Status(state, now_ms, reason)
        if self.on_change is not None:
            self.on_change(self)

    async def stop(self) -> None:
        self.is_stopped = True
        self._leave()
        if self.before:
            await asyncio.wait(self.before)
