"""Opens many connections with a channel each, to measure how fast they open and whether they stay open."""

from __future__ import annotations

import time

from warren.client.dialogue import Dialogue, log_in
from warren.client.errors import ClientError
from warren.client.uri import Uri
from warren.perf.files import allow_connections
from warren.perf.interrupt import Interrupt
from warren.perf.link import ANSWER_SECONDS_MAX, LoadLink, part
from warren.perf.loop import TURN_SECONDS_MAX, Loop
from warren.perf.results import ConnectionsResult
from warren.perf.screen import LIVE_SECONDS, Show


def run_connections(uri: Uri, wanted: int, *, parallel: int, hold_s: float, show: Show) -> ConnectionsResult:
    allow_connections(wanted)
    with Loop() as loop:
        crowd = Crowd(loop, uri, wanted)
        with Interrupt() as interrupt:
            crowd.open(parallel, interrupt, show)
            crowd.hold(hold_s, interrupt, show)
            result = crowd.result()
            part(loop, crowd.opened, interrupt)
    return result


class Crowd:
    """All connections of a run: those being opened, open, and failed."""

    def __init__(self, loop: Loop, uri: Uri, wanted: int) -> None:
        self.opened: list[LoadLink] = []  # also those that were lost later
        self._loop = loop
        self._uri = uri
        self._wanted = wanted  # how many to open
        self._opening: list[LoadLink] = []
        self._errors: list[ClientError] = []  # one for each connection that could not be opened
        self._seconds = 0.0  # how long opening took
        self._shown_s = 0.0  # when progress was shown last

    def open(self, parallel: int, interrupt: Interrupt, show: Show) -> None:
        begun_s = progress_s = time.monotonic()
        while self._done < self._wanted and not interrupt.requested:
            before = self._done
            self._dial(parallel)
            self._loop.turn(TURN_SECONDS_MAX)
            self._sort()
            now_s = time.monotonic()
            progress_s = now_s if self._done > before else progress_s
            if now_s - progress_s > ANSWER_SECONDS_MAX:
                self._give_up()
            self._show(now_s, show)
        self._seconds = time.monotonic() - begun_s

    @property
    def _done(self) -> int:
        return len(self.opened) + len(self._errors)

    def _dial(self, parallel: int) -> None:
        while len(self._opening) < parallel and self._done + len(self._opening) < self._wanted:
            try:
                link = LoadLink(self._loop, self._uri)
            except ClientError as error:
                self._errors.append(error)
                return
            link.start(self._log_in())
            self._opening.append(link)

    def _log_in(self) -> Dialogue[None]:
        yield from log_in(self._uri)

    def _sort(self) -> None:
        self._errors += [link.error for link in self._opening if link.error]
        self.opened += [link for link in self._opening if not link.error and not link.talking]
        self._opening = [link for link in self._opening if link.talking]

    def _give_up(self) -> None:
        for link in self._opening:
            link.fail(ClientError(f"the broker did not answer within {ANSWER_SECONDS_MAX} seconds"))
        self._sort()

    def hold(self, seconds: float, interrupt: Interrupt, show: Show) -> None:
        end_s = time.monotonic() + seconds
        while not interrupt.requested and (now_s := time.monotonic()) < end_s:
            self._loop.turn(min(TURN_SECONDS_MAX, end_s - now_s))
            self._show(now_s, show)

    def _show(self, now_s: float, show: Show) -> None:
        if now_s - self._shown_s >= LIVE_SECONDS:
            self._shown_s = now_s
            show(f"open {len(self.opened):,} of {self._wanted:,}   failed {len(self._errors):,}")

    def result(self) -> ConnectionsResult:
        lost = [link.error for link in self.opened if link.error]
        errors = self._errors + lost
        return ConnectionsResult(
            seconds=self._seconds,
            wanted=self._wanted,
            opened=len(self.opened),
            failed=len(self._errors),
            lost=len(lost),
            error=str(errors[0]) if errors else None,
        )
