"""Message counts and rates as RabbitMQ tells them, with samples of the past if a request asks for them.

    "message_stats": {"publish": 1200, "publish_details": {"rate": 14.2}, …},
    "messages_details": {"rate": -3.0}

`?msg_rates_age=60&msg_rates_incr=5` adds to the details of message counts what the count was in the last
60 s, every 5 s, with averages over that time. `lengths_…` does so for the lengths of queues, `data_rates_…`
for bytes, and `node_stats_…` for what nodes count (`node_stats.py`). Samples are no finer than the history
has them: 5 s for the last minute, a minute for the last hour, and half an hour for the last day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from aiohttp import web

from warren.broker.exchange.exchange import Exchange
from warren.broker.history import DAY, History, Timeline, scale_for
from warren.broker.node import Node
from warren.broker.queue import Queue
from warren.broker.tally import FIGURES, OCTETS, Tally
from warren.broker.vhost import Vhost
from warren.management.context import Context
from warren.management.endpoint import Parameter
from warren.management.errors import ApiError
from warren.management.schema import COUNT
from warren.server.churn import Churn
from warren.session.channel import Channel
from warren.session.connection import Connection

Row: TypeAlias = dict[str, Any]

INDEX = {name: (place,) for place, name in enumerate(FIGURES)}
DELIVERED = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""`deliver_get` is the sum of these."""
PLACES: dict[str, tuple[int, ...]] = {
    **INDEX,
    "publish_in": INDEX["publish"],
    "deliver_get": tuple(place for name in DELIVERED for place in INDEX[name]),
}
"""Where the figures of a count stand in `FIGURES`, which are the first values of every history."""
OF_CONSUMERS = (*DELIVERED, "get_empty", "deliver_get", "redeliver", "ack")
OF_QUEUES = ("publish", *OF_CONSUMERS)
OF_EXCHANGES = ("publish_in", "publish_out")
OF_CHANNELS = ("publish", "confirm", "return_unroutable", "drop_unroutable", *OF_CONSUMERS)
OF_OCTETS = len(FIGURES)  # where `OCTETS` begin in the histories of connections and vhosts
LENGTHS_OF_QUEUES = len(FIGURES)  # where the lengths begin in the histories of queues: ready, then unacked
LENGTHS_OF_VHOSTS = OF_OCTETS + len(OCTETS)
SAMPLES_MAX = 500  # of one number in one answer
KINDS = ("lengths", "msg_rates", "data_rates", "node_stats")
QUERY = tuple(
    Parameter(f"{kind}_{what}", COUNT, text)
    for kind in KINDS
    for what, text in (
        ("age", "Give samples of the last so many seconds."),
        ("incr", "Seconds between two of these samples."),
    )
)


@dataclass(frozen=True)
class Span:
    """The samples that a request asks for."""

    age: int  # seconds
    step: int  # seconds


@dataclass(frozen=True)
class Spans:
    lengths: Span | None
    msg_rates: Span | None
    data_rates: Span | None
    node_stats: Span | None

    @classmethod
    def of(cls, request: web.Request) -> Spans:
        return cls(*(_span(request, kind) for kind in KINDS))


class WrongRange(ApiError):
    status, error = 400, "invalid_range_parameters"


STEADY_LENGTHS = {
    f"{name}_details": {"rate": 0.0} for name in ("messages", "messages_ready", "messages_unacknowledged")
}
"""Of what never had a message: most queues of a broker with very many."""
NO_SPANS = Spans(None, None, None, None)


def _span(request: web.Request, kind: str) -> Span | None:
    """What is asked for in the parameters of a kind. As in RabbitMQ, None unless both are given as numbers,
    and an error if these make no sense, or ask for too many samples.
    """
    age, step = f"{kind}_age", f"{kind}_incr"
    if age not in request.query or step not in request.query:
        return None
    try:
        span = Span(int(request.query[age]), int(request.query[step]))
    except ValueError:
        return None
    if span.age < 1 or span.step < 1 or span.age // span.step > SAMPLES_MAX:
        raise WrongRange(f"Invalid range parameters: age {span.age}, incr {span.step}")
    return Span(min(span.age, DAY.seconds), span.step)


class Stats:
    """Makes the statistics of one answer."""

    def __init__(self, timeline: Timeline, spans: Spans = NO_SPANS) -> None:
        self.timeline = timeline
        self.spans = spans

    def of_queue(self, queue: Queue) -> Row:
        return {
            **self._lengths([queue.history], LENGTHS_OF_QUEUES, self.spans.lengths),
            **self._messages(queue.tally, OF_QUEUES, [queue.history]),
            **self._idle(queue.history),
        }

    def of_exchange(self, exchange: Exchange) -> Row:
        return self._messages(exchange.tally, OF_EXCHANGES, [exchange.history])

    def of_channel(self, channel: Channel) -> Row:
        stats = self._messages(channel.tally, OF_CHANNELS, [channel.history])
        return stats | self._idle(channel.history)

    def of_connection(self, connection: Connection) -> Row:
        passed = connection.bytes()
        row = self._octets((passed.received, passed.sent), connection.history)
        row |= {"recv_cnt": passed.reads, "send_cnt": passed.writes}
        row["send_pend"] = connection.output.pending_bytes + connection.link.unsent_bytes()
        return row | self._messages(connection.tally(), OF_CHANNELS, [connection.history])

    def _idle(self, history: History | None) -> Row:
        """Since when nothing was counted: nothing at all in the last tick, and at least once before."""
        if history is None or history.changed >= self.timeline.tick:
            return {}
        since = datetime.fromtimestamp(self.timeline.time_of(history.changed) / 1000, UTC)
        return {"idle_since": since.isoformat(timespec="milliseconds")}

    def _octets(self, octets: Sequence[int], history: History | None) -> Row:
        return self.numbers(OCTETS, octets, history, self.spans.data_rates, first=OF_OCTETS)

    def of_vhost(self, vhost: Vhost) -> Row:
        """As of the last sample: to look at all queues anew would take long. The lengths have their samples
        by `msg_rates_…`, as in RabbitMQ.
        """
        history = vhost.history
        ready, unacked = (0, 0) if history is None else history.values[LENGTHS_OF_VHOSTS:]
        return {
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
            **self._lengths([history], LENGTHS_OF_VHOSTS, self.spans.msg_rates),
            **self._octets(vhost.octets, history),
            **self.of_vhosts([vhost]),
        }

    def of_vhosts(self, vhosts: Sequence[Vhost]) -> Row:
        """The message counts of these vhosts together."""
        total = Tally()
        for vhost in vhosts:
            total.add(vhost.tally.total())
        return self._messages(total, OF_CHANNELS, [vhost.history for vhost in vhosts])

    def lengths_of_vhosts(self, vhosts: Sequence[Vhost]) -> Row:
        histories = [vhost.history for vhost in vhosts]
        return self._lengths(histories, LENGTHS_OF_VHOSTS, self.spans.lengths)

    def of_churn(self, churn: Churn, node: Node) -> Row:
        return self.numbers(Churn.NAMES, churn.figures(node), churn.history, self.spans.msg_rates)

    def churn_of_node(self, churn: Churn, node: Node) -> Row:
        return self.numbers(Churn.NAMES, churn.figures(node), churn.history, self.spans.node_stats)

    def numbers(
        self,
        names: Sequence[str],
        numbers: Sequence[int],
        history: History | None,
        span: Span | None,
        *,
        first: int = 0,
    ) -> Row:
        """These numbers, each with its details; `first` is where they begin in the history."""
        row: Row = {}
        for place, (name, number) in enumerate(zip(names, numbers, strict=True), start=first):
            row[name] = number
            row[f"{name}_details"] = self.details((place,), [history], span)
        return row

    def _lengths(self, histories: Sequence[History | None], first: int, span: Span | None) -> Row:
        if span is None and not any(histories):
            return STEADY_LENGTHS
        ready, unacked = first, first + 1
        return {
            "messages_details": self.details((ready, unacked), histories, span),
            "messages_ready_details": self.details((ready,), histories, span),
            "messages_unacknowledged_details": self.details((unacked,), histories, span),
        }

    def _messages(self, tally: Tally, names: Iterable[str], histories: Sequence[History | None]) -> Row:
        """As in RabbitMQ, there are no statistics of what was never used."""
        figures = tally.figures()
        if not any(figures):
            return {}
        stats: Row = {}
        for name in names:
            places = PLACES[name]
            stats[name] = sum(figures[place] for place in places)
            stats[f"{name}_details"] = self.details(places, histories, self.spans.msg_rates)
        return {"message_stats": stats}

    def details(self, places: tuple[int, ...], histories: Sequence[History | None], span: Span | None) -> Row:
        """The rate in the last tick, and samples if they are asked for: sums over these places of all these
        histories.
        """
        known = [history for history in histories if history is not None]
        if not known and span is None:
            return {"rate": 0.0}
        for history in known:
            history.catch_up(self.timeline.tick)
        change = sum(history.change(place) for history in known for place in places)
        details: Row = {"rate": change / self.timeline.seconds}
        if span is not None:
            details |= self.samples(places, known, span)
        return details

    def samples(self, places: tuple[int, ...], histories: Sequence[History], span: Span) -> Row:
        scale = scale_for(span.age)
        step = max(1, span.step // scale.slot_seconds)
        step_seconds = step * scale.slot_seconds
        count = span.age // step_seconds + 1
        columns = [history.samples(place, scale, step, count) for history in histories for place in places]
        values = [sum(row) for row in zip(*columns, strict=True)] if columns else [0] * count
        newest_ms = self.timeline.time_of(self.timeline.tick)
        seconds = (count - 1) * step_seconds
        return {
            "samples": [
                {"sample": value, "timestamp": newest_ms - 1000 * step_seconds * ago}
                for ago, value in enumerate(values)
            ],
            "avg_rate": (values[0] - values[-1]) / seconds if seconds else 0.0,
            "avg": sum(values) / count,
        }


def stats_for(context: Context, request: web.Request) -> Stats:
    """Of the broker, for the spans of time that the request asks for."""
    return Stats(context.broker.sampler.timeline, Spans.of(request))
