"""Moving, copying and deleting messages of a queue.

POST /api/queues/{vhost}/{queue}/move              {"to": queue, "count": n, "selector": text}
POST /api/queues/{vhost}/{queue}/copy              the same
POST /api/queues/{vhost}/{queue}/delete-messages   {"count": n, "selector": text}
GET  /api/message-jobs                             all jobs, those under way and the last that ended
GET  /api/message-jobs/{job}                       one of them
DELETE /api/message-jobs/{job}                     end it; what is done stays done

Without a count or a selector, a job is about all messages that are in the queue when it begins. It goes on by
itself, in small turns, until it is done (`broker/message_job.py`). The answer to a request describes the job:
when it has ended, or after as many seconds as the parameter `wait` says, while it goes on. Jobs end with the
broker: after a restart, ask again for what is left.

Users need the permission to read the queue, as to consume from it or to purge it, and to write to the target.
They see and end jobs of queues that they may read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from itertools import count

from aiohttp import web

from warren.broker.access import Access, Permission, User
from warren.broker.message_job import JobOrder, Kind, MessageJob, State
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.management.auth import allowed_queue, readable_queue, sees
from warren.management.bodies import object_in
from warren.management.context import Context
from warren.management.digits import number_of
from warren.management.endpoint import Endpoint, Parameter
from warren.management.errors import BadRequest, ObjectNotFound
from warren.management.json_text import json_response
from warren.management.paths import QUEUE, VHOST
from warren.management.peek import NUMBER_MAX, number_in, selector_in
from warren.management.rights import user_of
from warren.management.schema import COUNT, TEXT, Schema, one_of, or_none, record, rows

JOBS = "/api/message-jobs"
JOB = "{job:[^/]+}"
RUNNING_MAX = 20
ENDED_KEPT_MAX = 100
WAIT_SECONDS_USUAL, WAIT_SECONDS_MAX = 1, 60
BODY_BYTES_MAX = 128 * 1024
EXPECTED = '{"to": queue, "count": number, "selector": text}'
WAIT = Parameter("wait", COUNT, "How many seconds to wait for the job to end.")
DESCRIBED = record(
    {
        "id": COUNT,
        "kind": one_of(*Kind),
        "vhost": TEXT,
        "from": TEXT,
        "to": or_none(TEXT),
        "selector": or_none(TEXT),
        "count": or_none(COUNT),
        "state": one_of(*State),
        "reason": TEXT,
        "done": COUNT,
        "done_bytes": COUNT,
        "left_out": COUNT,
        "user": TEXT,
    }
)


class ListedJob:
    """A job, as the API knows it."""

    def __init__(self, number: int, order: JobOrder, user: str, node: Node) -> None:
        self.number = number
        self.user = user  # who asked for it
        self.order: JobOrder | None = order  # None when it has ended, so that no deleted queue is kept
        self.vhost, self.queue = order.source.vhost, order.source.name
        self.ended = asyncio.Event()
        self.described: dict[str, object] = {}  # what it came to, when it has ended
        self.job: MessageJob | None = MessageJob(
            order, node.store, is_blocked=lambda: bool(node.alarms), ended=self._ended
        )
        self.job.start()

    def _ended(self) -> None:
        self.described = self.describe()
        self.order = self.job = None
        self.ended.set()

    def describe(self) -> dict[str, object]:
        order, job = self.order, self.job
        if order is None or job is None:
            return self.described
        return {
            "id": self.number,
            "kind": order.kind,
            "vhost": self.vhost,
            "from": self.queue,
            "to": None if order.target is None else order.target.name,
            "selector": None if order.selector is None else order.selector.text,
            "count": order.count_max,
            "state": job.state,
            "reason": job.reason,
            "done": job.done,
            "done_bytes": job.done_bytes,
            "left_out": job.left_out,
            "user": self.user,
        }

    async def wait(self, seconds: float) -> None:
        """Wait until the job has ended, but no longer than this."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), seconds)

    def cancel(self) -> None:
        if self.job is not None:
            self.job.cancel()


class MessageJobs:
    def __init__(self, context: Context) -> None:
        self.node = context.node
        self.numbers = count(1)
        self.jobs: dict[int, ListedJob] = {}  # by number, the oldest first

    def endpoints(self) -> list[Endpoint]:
        one = f"{JOBS}/{JOB}"
        to = record({"to": TEXT}, count=COUNT, selector=TEXT)
        return [
            self._asking("move", Kind.MOVE, "Move messages to another queue of the vhost.", to),
            self._asking("copy", Kind.COPY, "Copy messages to another queue of the vhost.", to),
            self._asking(
                "delete-messages",
                Kind.DELETE,
                "Delete messages; they are not dead-lettered.",
                record(count=COUNT, selector=TEXT),
            ),
            Endpoint(
                method="GET",
                path=JOBS,
                handler=self.list_all,
                summary="Jobs that move, copy or delete messages: those under way, and the last that ended.",
                gives=rows(DESCRIBED),
            ),
            Endpoint(
                method="GET", path=one, handler=self.get, summary="One job.", query=(WAIT,), gives=DESCRIBED
            ),
            Endpoint(
                method="DELETE",
                path=one,
                handler=self.cancel,
                summary="End a job. What is done stays done.",
                gives=DESCRIBED,
            ),
        ]

    def _asking(self, verb: str, kind: Kind, summary: str, takes: Schema) -> Endpoint:
        async def handler(request: web.Request) -> web.StreamResponse:
            return await self._begin(request, kind)

        return Endpoint(
            method="POST",
            path=f"/api/queues/{VHOST}/{QUEUE}/{verb}",
            handler=handler,
            summary=summary,
            query=(WAIT,),
            takes=takes,
            gives=DESCRIBED,
        )

    async def _begin(self, request: web.Request, kind: Kind) -> web.StreamResponse:
        seconds = seconds_in(request)
        readable_queue(self.node, request)  # refuses users without permission before their body is read
        body = await request.read()
        order = order_in(body, kind, readable_queue(self.node, request), self._target_finder(request))
        self._make_room()
        job = ListedJob(next(self.numbers), order, user_of(request).name, self.node)
        self.jobs[job.number] = job
        await job.wait(seconds)
        return json_response(job.describe())

    def _target_finder(self, request: web.Request) -> Callable[[str], Queue]:
        return lambda name: allowed_queue(self.node, request, Permission.WRITE, name)

    def _make_room(self) -> None:
        """Forget the oldest jobs that have ended. Raise if too many are under way."""
        ended = [number for number, job in self.jobs.items() if job.ended.is_set()]
        if len(self.jobs) - len(ended) >= RUNNING_MAX:
            raise BadRequest(f"{RUNNING_MAX} jobs are under way")
        for number in ended[: max(len(ended) - ENDED_KEPT_MAX + 1, 0)]:
            del self.jobs[number]

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        user = user_of(request)
        return json_response([job.describe() for job in self.jobs.values() if _is_shown(job, user)])

    async def get(self, request: web.Request) -> web.StreamResponse:
        job = self._job(request)
        await job.wait(seconds_in(request, usual=0))
        return json_response(job.describe())

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """Ends the job, and waits until the messages that are under way have arrived."""
        job = self._job(request)
        job.cancel()
        await job.wait(WAIT_SECONDS_USUAL)
        return json_response(job.describe())

    def _job(self, request: web.Request) -> ListedJob:
        text = request.match_info["job"]
        number = number_of(text)
        job = None if number is None else self.jobs.get(number)
        if job is None or not _is_shown(job, user_of(request)):
            raise ObjectNotFound(f"no job '{text}'")
        return job


def _is_shown(job: ListedJob, user: User) -> bool:
    return sees(user, job.vhost) and Access(user, job.vhost).allows(Permission.READ, job.queue)


def seconds_in(request: web.Request, usual: int = WAIT_SECONDS_USUAL) -> int:
    return min(number_in(request.query.get("wait"), "wait", usual), WAIT_SECONDS_MAX)


def order_in(body: bytes, kind: Kind, source: Queue, find: Callable[[str], Queue]) -> JobOrder:
    """What the body of a request asks for."""
    given = object_in(body, EXPECTED, bytes_max=BODY_BYTES_MAX) if body else {}
    to, wanted, text = given.get("to"), given.get("count"), given.get("selector")
    if not isinstance(text, str | None):
        raise BadRequest("selector: expected a text")
    if wanted is not None and (type(wanted) is not int or not 0 <= wanted <= NUMBER_MAX):
        raise BadRequest("count: expected a number from 0 on")
    if kind is not Kind.COPY and not source.lets_go:
        raise BadRequest(f"{source.what} is a stream: its messages can only be copied")
    target = None
    if kind is not Kind.DELETE:
        if not isinstance(to, str):
            raise BadRequest(f"expected {EXPECTED}")
        target = find(to)
        if target is source:
            raise BadRequest(f"to: {source.what} is where the messages are")
    return JobOrder(kind=kind, source=source, target=target, selector=selector_in(text), count_max=wanted)
