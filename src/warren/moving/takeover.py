"""Takes a RabbitMQ over: its definitions, then the messages of its queues, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from warren.amqp.errors import NotAllowed
from warren.client.api import Api, ApiError, Row, Unreachable
from warren.client.connection import ClientConnection
from warren.client.errors import ClientError, ClosedByBrokerError, OutageError
from warren.client.uri import Uri
from warren.moving.drain import BATCH, Drain, Moved
from warren.moving.outage import GivenUp, Patience
from warren.moving.outlet import EXCHANGES, Outlet, exchange_for
from warren.moving.queues import QueueInfo, by_name, of_vhost, queues_in, queues_of
from warren.moving.report import QueueReport, Taken
from warren.moving.stream_copy import StreamCopy
from warren.moving.tap import PRODUCT, filled_among
from warren.moving.users import without_lockout

LOOK_SECONDS, LOOKS_MAX = 2.5, 24
"""RabbitMQ renews the figures of its management API every five seconds, or later if it is busy."""

OUT_LOOKS_MAX = 4
"""After so many looks we wait no longer for messages that consumers have: they may be kept for ever."""

USERS = ("users", "permissions", "topic_permissions")
NOT_BEGUN = "not begun"


@dataclass(frozen=True)
class Plan:
    """What to take over."""

    vhost: str | None = None
    """Only this vhost; None for all."""
    definitions: Row | None = None
    """Of a file; None if the source is to be asked."""
    with_definitions: bool = True
    """Whether to take over definitions; without, every queue has to be here already."""
    with_users: bool = True
    """Whether users and permissions are among the definitions."""
    with_messages: bool = True
    """Whether to move messages."""
    batch: int = BATCH
    """How many messages are in flight at most, and so may be in both brokers after a kill."""


class VhostMover:
    """Moves queues and copies streams of one vhost."""

    def __init__(
        self, source: Uri, to: Uri, outlet: Outlet, api: Api, progress: Callable[[int], None], *, batch: int
    ) -> None:
        self._drain = Drain(source, outlet, progress, batch=batch)
        self._copy = StreamCopy(source, to, outlet, api, progress, batch=batch)

    def take(self, queue: QueueInfo, *, has_old_way: bool) -> Moved:
        if queue.is_stream:
            return self._copy.copy(queue)
        return self._drain.move(queue, has_old_way=has_old_way)


class Takeover:
    """`source` is None if all is known from a file of definitions."""

    def __init__(
        self,
        plan: Plan,
        *,
        source: Api | None,
        source_amqp: Uri,
        to: Api,
        to_amqp: Uri,
        progress: Callable[[str], None],
    ) -> None:
        self.trouble = ""  # what went wrong at the end, when there are rows to show already
        self.is_cut_off = False  # whether a broker went away, and did not come back
        self.remarks: list[str] = []  # what the operator should know besides
        self._plan = plan
        self._source = source  # the RabbitMQ's management API
        self._source_amqp = source_amqp  # the same broker over AMQP, in any vhost
        self._to = to  # our HTTP API
        self._to_amqp = to_amqp  # the same broker over AMQP, in any vhost
        self._progress = progress  # shows a line about how far we are
        self._patience = Patience(progress)
        self._old_ways: set[tuple[str, str]] = set()  # by vhost: exchanges that earlier runs have left here
        self._moved = 0  # messages so far
        self._place = ""  # the queue that is being moved

    def run(self) -> list[QueueReport]:
        definitions = self._definitions() if self._plan.with_definitions else None
        if self._plan.with_messages:
            self._check_links()
        if definitions is not None:
            self._progress("definitions")
            self._make_vhosts(definitions)
            self._to.post("definitions", *self._vhosts(), content=definitions)
        here = by_name(queues_of(self._to, self._plan.vhost))
        taken = [self._plan_for(queue, here.get((queue.vhost, queue.name))) for queue in self._queues()]
        try:
            if self._plan.with_messages:
                self._old_ways = self._find_old_ways()
                self._take_all(taken)
                self._look_again(taken)
        except (ApiError, Unreachable, ClientError) as error:
            self.trouble = f"whether anything is left there is not known: {error}"
        except GivenUp as error:
            self.trouble, self.is_cut_off = str(error), True
        return [each.report() for each in taken]

    def _check_links(self) -> None:
        """Log in to both brokers over AMQP, before anything is changed."""
        for uri, option in ((self._source_amqp, "--amqp"), (self._to_amqp, "--to-amqp")):
            try:
                with ClientConnection(uri, product=PRODUCT):
                    pass
            except ClosedByBrokerError as error:
                if error.code != NotAllowed.code:  # it is this vhost that is refused, which may not matter
                    raise ClientError(f"cannot log in to {uri.address} as '{uri.user}': {error}") from error
            except OutageError as error:
                raise Unreachable(f"{error}; if AMQP is spoken elsewhere, say so with {option}") from error
            except ClientError as error:
                raise ClientError(f"{uri.address}: {error}") from error

    # --- definitions ---

    def _vhosts(self) -> tuple[str, ...]:
        return () if self._plan.vhost is None else (self._plan.vhost,)

    def _definitions(self) -> Row:
        definitions = self._plan.definitions
        if definitions is None:
            assert self._source is not None, "without a source there is a file"
            definitions = dict(self._source.get("definitions", *self._vhosts()))
        elif self._plan.vhost is not None:
            definitions = of_vhost(definitions, self._plan.vhost)
        left_out = () if self._plan.with_users else USERS
        chosen = {name: value for name, value in definitions.items() if name not in left_out}
        return without_lockout(chosen, self._to.url, self.remarks.append)

    def _make_vhosts(self, definitions: Row) -> None:
        """Make the vhosts that are not here yet. Who makes a vhost may use it: we need to."""
        wanted = self._vhosts() or [row["name"] for row in definitions.get("vhosts") or []]
        known = {row["name"] for page in self._to.pages("vhosts") for row in page}
        for name in wanted:
            if name not in known:
                self._to.put("vhosts", name, content={})

    def _queues(self) -> list[QueueInfo]:
        """The queues of the source; those that are not in its definitions, such as exclusive ones,
        included.
        """
        if self._source is not None:
            return list(queues_of(self._source, self._plan.vhost))
        return list(queues_in(self._plan.definitions or {}, self._plan.vhost))

    # --- messages ---

    def _plan_for(self, there: QueueInfo, here: QueueInfo | None) -> Taken:
        """The queue before anything of it is moved."""
        reason = self._why_not(there, here)
        is_copied = there.is_stream and reason is None
        left = there.messages if self._plan.with_messages and not is_copied else 0
        return Taken(there, here, reason, Moved(left=left, problem="" if reason is not None else NOT_BEGUN))

    def _why_not(self, there: QueueInfo, here: QueueInfo | None) -> str | None:
        """Why the messages of a queue are not moved; None if they are."""
        if not self._plan.with_messages:
            return ""
        if there.exclusive:
            return "belongs to one connection there"
        if here is None:
            return ""
        return "a stream is copied to a stream only" if there.is_stream and not here.is_stream else None

    def _take_all(self, taken: list[Taken]) -> None:
        for vhost in dict.fromkeys(each.there.vhost for each in taken):
            with Outlet(replace(self._to_amqp, vhost=vhost)) as outlet:
                mover = self._mover(vhost, outlet)
                for number, each in enumerate(taken, 1):
                    if each.there.vhost == vhost and each.reason is None:
                        self._place = f"queue {number} of {len(taken)}, {each.there.name}"
                        self._count(0)
                        self._take(mover, each)

    def _mover(self, vhost: str, outlet: Outlet) -> VhostMover:
        source, to = replace(self._source_amqp, vhost=vhost), replace(self._to_amqp, vhost=vhost)
        return VhostMover(source, to, outlet, self._to, self._count, batch=self._plan.batch)

    def _take(self, mover: VhostMover, each: Taken) -> None:
        """Take the queue, in several attempts if a broker goes away meanwhile."""
        has_old_way = (each.there.vhost, exchange_for(each.there.name)) in self._old_ways
        while True:
            again = mover.take(each.there, has_old_way=has_old_way)
            each.result.add(again)
            if again.moved or not again.is_cut_off:
                self._patience.reset()
            if not again.is_cut_off:
                return
            is_copied = each.there.is_stream
            each.result.left = 0 if is_copied else max(0, each.there.messages - each.result.moved)
            self._patience.wait(again.problem)

    def _find_old_ways(self) -> set[tuple[str, str]]:
        found = set()
        for page in self._to.pages("exchanges", *self._vhosts(), query={"columns": "vhost,name"}):
            found |= {(row["vhost"], row["name"]) for row in page if row["name"].startswith(EXCHANGES)}
        return found

    def _look_again(self, taken: Iterable[Taken]) -> None:
        """Look until the source itself says that nothing is left, or what is out with its consumers. Messages
        come back to their queues when a consumer lets go of them, and dead letters come to queues that were
        empty already.
        """
        moved = {each.key: each for each in taken if each.reason is None and not each.result.problem}
        queues = {key: each for key, each in moved.items() if not each.there.is_stream}
        doubtful = queues
        for _ in range(LOOKS_MAX):
            self._take_filled(queues)
            doubtful = self._take_again(doubtful) if self._source is not None else {}
            if not doubtful:
                return
            self._progress(f"{len(doubtful)} queues are not empty by the figures there: looking again")
            time.sleep(LOOK_SECONDS)

    def _take_filled(self, queues: Mapping[tuple[str, str], Taken]) -> None:
        """Take again what has messages by the queues' own word."""
        for vhost in dict.fromkeys(vhost for vhost, _name in queues):
            names = [name for its_vhost, name in queues if its_vhost == vhost]
            filled = filled_among(replace(self._source_amqp, vhost=vhost), names)
            with Outlet(replace(self._to_amqp, vhost=vhost)) as outlet:
                for name in filled:
                    self._take(self._mover(vhost, outlet), queues[vhost, name])

    def _take_again(self, doubtful: Mapping[tuple[str, str], Taken]) -> dict[tuple[str, str], Taken]:
        """Take again what has messages by the figures of the source; return those that remain doubtful."""
        assert self._source is not None, "there is somebody to ask"
        still: dict[tuple[str, str], Taken] = {}
        for told in list(queues_of(self._source, self._plan.vhost)):
            each = doubtful.get((told.vhost, told.name))
            if each is None:
                continue
            each.unacked = told.unacked
            if told.messages:
                with Outlet(replace(self._to_amqp, vhost=told.vhost)) as outlet:
                    self._take(self._mover(told.vhost, outlet), each)
                each.looks += is_true(told, each.result)
                is_settled = each.looks >= OUT_LOOKS_MAX or each.result.problem
                still |= {} if is_settled else {each.key: each}
        return still

    def _count(self, moved: int) -> None:
        self._moved += moved
        self._progress(f"{self._place}: {self._moved:,} messages moved")


def is_true(told: QueueInfo, found: Moved) -> bool:
    """Whether the source's figures about a queue are not older than our move, which left none ready. Older
    ones have messages that were ready, or one consumer more, which was us; but a queue that is deleted with
    its last consumer was never consumed by us.
    """
    return not told.ready and told.consumers == found.others and not told.auto_delete
