"""The results of runs, as a JSON object for programs and as rows of a table for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Protocol, TypeAlias

from warren.perf.scanner import Histogram

Json: TypeAlias = dict[str, object]
Rows: TypeAlias = list[tuple[str, str]]


class LoadResult(Protocol):
    def as_json(self) -> Json: ...
    def rows(self) -> Rows: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many messages went through each stage."""

    published: int
    confirmed: int
    nacked: int
    consumed: int

    def since(self, before: Counts) -> Counts:
        return Counts(
            published=self.published - before.published,
            confirmed=self.confirmed - before.confirmed,
            nacked=self.nacked - before.nacked,
            consumed=self.consumed - before.consumed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The time from handing a message to the socket until it is received, in microseconds."""

    p50: float
    p95: float
    p99: float
    max: float

    @staticmethod
    def of(seen: Histogram) -> Latency | None:
        if seen.count == 0:
            return None
        p50, p95, p99 = (seen.percentile(share) / 1000 for share in (0.50, 0.95, 0.99))
        return Latency(p50=p50, p95=p95, p99=p99, max=seen.max_ns / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputResult:
    """The result of `warren perf throughput` and of `warren perf latency`."""

    seconds: float
    total: Counts
    latency: Latency | None
    blocked: int  # how often the broker told a publisher to pause

    def rate(self, count: int) -> float:
        return count / self.seconds if self.seconds else 0.0

    def as_json(self) -> Json:
        return {
            "seconds": round(self.seconds, 3),
            **asdict(self.total),
            "publish_per_s": round(self.rate(self.total.published), 1),
            "confirm_per_s": round(self.rate(self.total.confirmed), 1),
            "consume_per_s": round(self.rate(self.total.consumed), 1),
            "latency_us": asdict(self.latency) if self.latency else None,
            "blocked": self.blocked,
        }

    def rows(self) -> Rows:
        stages = [("published", self.total.published), ("consumed", self.total.consumed)]
        if self.total.confirmed:
            stages.insert(1, ("confirmed", self.total.confirmed))
        if self.total.nacked:
            stages.append(("refused (nack)", self.total.nacked))
        rows = [(name, f"{self.rate(count):,.0f}/s   ({count:,} in all)") for name, count in stages]
        if self.latency:
            rows += [(f"latency {name}", f"{us:,.0f} µs") for name, us in asdict(self.latency).items()]
        if self.blocked:
            rows.append(("blocked by the broker", f"{self.blocked} times"))
        return [*rows, ("measured for", f"{self.seconds:.1f} s")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsResult:
    """The result of `warren perf connections`."""

    seconds: float  # how long opening took
    wanted: int
    opened: int
    failed: int  # could not be opened
    lost: int  # were opened, and broke while they were held
    error: str | None  # the first one

    @property
    def opened_per_s(self) -> float:
        return self.opened / self.seconds if self.seconds else 0.0

    def as_json(self) -> Json:
        return {
            **asdict(self),
            "seconds": round(self.seconds, 3),
            "opened_per_s": round(self.opened_per_s, 1),
        }

    def rows(self) -> Rows:
        return [
            ("opened", f"{self.opened:,} of {self.wanted:,}"),
            ("rate", f"{self.opened_per_s:,.0f}/s"),
            ("failed to open", f"{self.failed:,}"),
            ("lost while held", f"{self.lost:,}"),
            ("opening took", f"{self.seconds:.2f} s"),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """The result of `warren perf stream`. Each of the `readers` has read all messages."""

    messages: int
    readers: int
    fill_seconds: float
    read_seconds: float

    @property
    def confirm_per_s(self) -> float:
        return self.messages / self.fill_seconds

    @property
    def read_per_s(self) -> float:
        return self.messages * self.readers / self.read_seconds

    def as_json(self) -> Json:
        rates = {"confirm_per_s": round(self.confirm_per_s, 1), "read_per_s": round(self.read_per_s, 1)}
        return {**asdict(self), **rates}

    def rows(self) -> Rows:
        return [
            ("published and confirmed", f"{self.confirm_per_s:,.0f}/s   ({self.messages:,} in all)"),
            ("read from the first", f"{self.read_per_s:,.0f}/s   ({self.readers} readers)"),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnResult:
    """The result of `warren perf churn`. An operation is a pair, such as a declare and its delete."""

    of: str
    seconds: float
    operations: int

    @property
    def operations_per_s(self) -> float:
        return self.operations / self.seconds if self.seconds else 0.0

    def as_json(self) -> Json:
        rate = round(self.operations_per_s, 1)
        return {**asdict(self), "seconds": round(self.seconds, 3), "operations_per_s": rate}

    def rows(self) -> Rows:
        return [
            (f"{self.of} made and unmade", f"{self.operations:,}"),
            ("rate", f"{self.operations_per_s:,.0f}/s"),
            ("measured for", f"{self.seconds:.1f} s"),
        ]
