"""The text that Prometheus reads, made and sent in bounded turns.

# HELP rabbitmq_queues Queues
# TYPE rabbitmq_queues gauge
rabbitmq_queues 3
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass

from aiohttp import web

from warren.management.json_text import batches, send_pieces
from warren.server.metrics import Labels, Metric, Number

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_A_TURN = 1_000


@dataclass(frozen=True)
class Family:
    """A metric with its samples: what is added to the name, the labels as text, and the number."""

    name: str
    text: str
    kind: str
    samples: Iterable[tuple[str, str, Number]]


def single(name: str, text: str, number: Number, kind: str = "gauge", labels: Labels | None = None) -> Family:
    """A family of one sample."""
    return Family(name, text, kind, [("", labels_text(labels or {}), number)])


def family_of(metric: Metric) -> Family:
    samples = ((suffix, labels_text(labels), number) for suffix, labels, number in metric.samples())
    return Family(metric.name, metric.text, metric.kind, samples)


def labels_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels.items()) + "}"


def escape(value: str) -> str:
    """A label's value. Names may have bytes that are not UTF-8: they are shown in hexadecimal."""
    if not value.isascii():
        value = value.encode("utf-8", "backslashreplace").decode()
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def lines_of(families: Iterable[Family]) -> Iterator[str]:
    for family in families:
        yield f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n"
        for suffix, labels, number in family.samples:
            yield f"{family.name}{suffix}{labels} {number}\n"


async def send_families(request: web.Request, families: Iterable[Family]) -> web.StreamResponse:
    """Send these families. Their samples are made just before they are sent."""

    async def pieces() -> AsyncIterator[bytes]:
        for batch in batches(lines_of(families), LINES_A_TURN):
            yield "".join(batch).encode()
            await asyncio.sleep(0)
        yield b""

    return await send_pieces(request, pieces(), CONTENT_TYPE)
