"""Spans of sampled messages: what they tell, and that they reach an OTLP endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aio_pika
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import warren
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table, encode_name
from warren.broker.message import Message
from warren.telemetry.spans import Spans
from warren.telemetry.trace_context import TraceContext, sampled_context

WAIT_SECONDS_MAX = 60
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"


def message(headers: Table) -> Message:
    properties = BasicProperties(headers=headers).encode()
    return Message(encode_name(""), encode_name("q"), properties, b"", False)


def test_the_trace_of_a_sampled_message_is_found() -> None:
    assert sampled_context(message({"a": 1, "traceparent": SAMPLED})) == TraceContext(
        int(TRACE, 16), int(SPAN, 16)
    )
    assert sampled_context(message({"traceparent": f"01-{TRACE}-{SPAN}-03-more"})) is not None


@pytest.mark.parametrize(
    "value",
    [
        f"00-{TRACE}-{SPAN}-00",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        "",
        "x" * 10_000,
        5,
        None,
    ],
)
def test_other_messages_have_no_sampled_trace(value: str | int | None) -> None:
    assert sampled_context(message({"traceparent": value})) is None
    assert sampled_context(message({})) is None


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[warren.Broker]:
    async with warren.Broker(port=0, data_dir=tmp_path / "data") as broker:
        yield broker


async def send_and_get(broker: warren.Broker, headers: dict[str, str]) -> None:
    """One message goes through a queue, and is acknowledged."""
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("orders")
        sent = aio_pika.Message(b"hello", headers=dict(headers))
        await channel.default_exchange.publish(sent, "orders")
        async with queue.iterator() as messages:
            async for got in messages:
                assert got.headers == headers
                await got.ack()
                break


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_a_sampled_message_has_spans_below_its_publisher(broker: warren.Broker) -> None:
    exporter = InMemorySpanExporter()
    spans = Spans(broker)
    spans.begin(SimpleSpanProcessor(exporter))
    await send_and_get(broker, {"traceparent": SAMPLED})
    await send_and_get(broker, {"traceparent": f"00-{TRACE}-{SPAN}-00"})
    await send_and_get(broker, {})
    await spans.stop()
    await send_and_get(broker, {"traceparent": SAMPLED})
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert list(found) == ["publish amq.default", "wait orders", "ack orders"]
    for span in found.values():
        assert span.parent is not None
        assert (span.parent.trace_id, span.parent.span_id) == (int(TRACE, 16), int(SPAN, 16))
        assert attributes_of(span)["messaging.message.body.size"] == 5
    waited = found["wait orders"]
    assert attributes_of(waited)["messaging.destination.name"] == "orders"
    assert waited.start_time is not None
    assert waited.end_time is not None
    assert waited.start_time <= waited.end_time


async def test_spans_reach_the_endpoint(tmp_path: Path) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        received.put_nowait(await request.read())
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    endpoint = f"http://{host}:{port}/v1/traces"
    async with warren.Broker(port=0, data_dir=tmp_path / "data", otel_endpoint=endpoint) as broker:
        await send_and_get(broker, {"traceparent": SAMPLED})
    body = await asyncio.wait_for(received.get(), WAIT_SECONDS_MAX)
    await runner.cleanup()
    request = ExportTraceServiceRequest.FromString(body)
    names = [span.name for one in request.resource_spans for two in one.scope_spans for span in two.spans]
    assert names == ["publish amq.default", "wait orders", "ack orders"]
    assert {
        span.trace_id.hex() for one in request.resource_spans for s in one.scope_spans for span in s.spans
    } == {TRACE}
