"""Copies streams from one broker to another, in order: each message once, also if the copy is killed.

The source keeps its messages, so notes in our own stream say how far the copy is (`stream_notes.py`). When a
batch is confirmed, it is noted. A copy that was killed in between has published messages that no note knows
of: they are in our stream behind the note, in order, perhaps with messages of other publishers among them.
The next copy looks them up there, and goes on behind the last one that has arrived. So that none of them
arrives after that look, each copy holds an exclusive queue on the connection that publishes: it is free when
the broker is done with all that the killed copy has sent.

Two messages count as the same if exchange, routing key, properties and body are. So if others publish to our
stream exactly what the source has next, while a copy is being killed, that message is taken for copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager

from warren.amqp.errors import ResourceLocked
from warren.amqp.methods import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk
from warren.broker.message import Message
from warren.client.api import Api, ApiError, Unreachable
from warren.client.dialogue import ask
from warren.client.errors import ClientError, ClosedByBrokerError, OutageError
from warren.client.uri import Uri
from warren.moving.drain import BATCH, Moved
from warren.moving.outlet import Outlet, exchange_for, outgoing_message
from warren.moving.queues import QueueInfo
from warren.moving.stream_notes import Note, StreamNotes
from warren.moving.stream_tap import StreamEnd, StreamTap, find_end, reading_client, stream_message
from warren.moving.tap import STALLED_SECONDS
from warren.pipeline.publisher import OutgoingMessage, PublishError

LOCK_SECONDS_MAX = 30.0
LOCK_AGAIN_SECONDS = 0.1


class StreamCopy:
    """Copies streams of one vhost, one by one. `progress` is told how many messages each batch had."""

    def __init__(
        self,
        source: Uri,
        to: Uri,
        outlet: Outlet,
        api: Api,
        progress: Callable[[int], None],
        *,
        batch: int = BATCH,
    ) -> None:
        self._source = source  # where the streams are
        self._to = to  # where their messages go
        self._outlet = outlet  # the way there
        self._api = api  # our HTTP API
        self._progress = progress
        self._batch = batch

    def copy(self, stream: QueueInfo) -> Moved:
        """Copy what the stream has. Errors of either broker end the copy of this stream only."""
        result = Moved()
        try:
            end = find_end(self._source, stream.name)
            if end.last is not None:
                with self._lock(stream.name):
                    self._copy(stream, end, end.last, result)
        except PublishError as error:
            result.fail("here", error)
            self._outlet.drop()
        except ClientError as error:
            result.fail("there", error)
        return result

    @contextmanager
    def _lock(self, stream: str) -> Iterator[None]:
        """Hold an exclusive queue, so that no other copy of this stream publishes."""
        until = time.monotonic() + LOCK_SECONDS_MAX
        name = exchange_for(stream)
        declare = QueueDeclare(queue=name, exclusive=True, arguments={})
        while True:
            try:
                self._outlet.publisher().talk(ask(declare, QueueDeclareOk))
                break
            except PublishError as error:
                if not _is_locked(error) or time.monotonic() > until:
                    raise
            self._outlet.drop()
            time.sleep(LOCK_AGAIN_SECONDS)
        try:
            yield
        except ClientError:  # of the source; after one of ours, the queue goes with its connection
            self._unlock(name)
            raise
        self._unlock(name)

    def _unlock(self, name: str) -> None:
        self._outlet.publisher().talk(ask(QueueDelete(queue=name), QueueDeleteOk))

    def _copy(self, stream: QueueInfo, end: StreamEnd, last: int, result: Moved) -> None:
        with here():
            notes = StreamNotes(self._api, stream.vhost, stream.name, end.cluster)
        note = notes.last()
        if note is not None and note.there > last + 1:
            result.problem = (
                f"ends at offset {last} there, but was copied up to {note.there - 1} already, so it was made "
                f"anew; delete the stream here to copy it again"
            )
            return
        start = 0 if note is None else note.there
        with closing(StreamTap(self._source, stream.name, start=start, end=last, batch=self._batch)) as tap:
            if note is None:
                self._begin(tap, notes)
            else:
                self._skip(tap, stream.name, notes, note)
            self._pump(tap, stream.name, notes, result)

    def _begin(self, tap: StreamTap, notes: StreamNotes) -> None:
        """Note where the copy begins before anything is published."""
        first = tap.take()
        if first:
            with here():
                notes.put(Note(notes.ends().next, first[0].offset))

    def _skip(self, tap: StreamTap, stream: str, notes: StreamNotes, note: Note) -> None:
        """Skip the messages that have arrived since the note: those of the source that come up behind it in
        our stream, one after the other.
        """
        with here():
            stop = notes.ends().next
        if stop <= note.here:
            return
        held, at = tap.take(), 0
        with closing(self._published(stream, note.here, stop)) as ours:
            for message in ours:
                if not held:
                    break
                at += _is_same(message, outgoing_message(held[at].message, stream))
                if at == len(held):
                    tap.settle(at)
                    held, at = tap.take(), 0
        tap.settle(at)

    def _published(self, stream: str, start: int, stop: int) -> Generator[Message, None, None]:
        """The messages of our stream from one offset to another."""
        with here(), closing(reading_client(self._to, stream, start, batch=self._batch)) as client:
            while start < stop:
                client.gather(STALLED_SECONDS)
                if not client.held:
                    raise ClientError("the stream delivers nothing to us")
                for delivery in client.first(len(client.held)):
                    start, message = stream_message(delivery)
                    start += 1
                    if start <= stop:
                        yield message
                client.settle(len(client.held))

    def _pump(self, tap: StreamTap, stream: str, notes: StreamNotes, result: Moved) -> None:
        while held := tap.take():
            done = self._outlet.publish([each.message for each in held], stream)
            result.moved += done.safe
            result.rerouted += done.rerouted
            self._progress(done.safe)
            if done.safe:
                with here():
                    notes.put(Note(notes.ends().next, held[done.safe - 1].offset + 1))
            tap.settle(done.safe)
            if done.refusal:
                result.problem = f"refused here: {done.refusal}"
                return


@contextmanager
def here() -> Iterator[None]:
    """Tell errors of our own broker from those of the source."""
    try:
        yield
    except Unreachable as error:
        raise PublishError(str(error), confirmed=0, sent=0) from OutageError(str(error))
    except (ClientError, ApiError) as error:
        raise PublishError(str(error), confirmed=0, sent=0) from error


def _is_locked(error: PublishError) -> bool:
    cause = error.__cause__
    return isinstance(cause, ClosedByBrokerError) and cause.code == ResourceLocked.code


def _is_same(message: Message, published: OutgoingMessage) -> bool:
    return (message.exchange_name, message.key, message.properties, message.body) == (
        published.exchange,
        published.routing_key,
        published.properties,
        published.body,
    )
