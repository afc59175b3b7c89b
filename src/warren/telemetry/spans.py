"""The service `otel`: makes spans of what happens to sampled messages, and sends them to an OTLP endpoint.

    publish EXCHANGE    the message was routed
    wait QUEUE          from its arrival until it was delivered: how long it waited
    ack QUEUE           a consumer has acknowledged it
    die QUEUE           it was dead-lettered or dropped, with the reason

All are children of the span that published the message. A thread of the OpenTelemetry SDK sends them; if the
endpoint does not answer, they are dropped, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from warren.broker import events
from warren.server.config_error import ConfigError
from warren.telemetry.trace_context import TraceContext, sampled_context
from warren.version import __version__

NANOSECONDS_A_MS = 1_000_000
QUEUE = "messaging.destination.name"
SYSTEM = "rabbitmq"  # the name of the protocol's semantics in OpenTelemetry's conventions


OfMessage: TypeAlias = (
    events.MessagePublished | events.MessageDelivered | events.MessageAcked | events.MessageDeadLettered
)


class Spans:
    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.node = broker.node
        self.provider: Any = None  # the SDK's TracerProvider; None before the start
        self.unsubscribe: list[Callable[[], None]] = []

    @property
    def address(self) -> str:
        return str(self.broker.config.otel_endpoint)

    async def start(self) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(f"otel_endpoint: pip install 'warrenmq[otel]' ({error})") from error
        self.begin(BatchSpanProcessor(OTLPSpanExporter(endpoint=self.address)))

    def begin(self, processor: Any) -> None:
        """Give every span to this processor of the SDK."""
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        names = {"service.name": self.node.cluster_name, "service.version": __version__}
        self.provider = TracerProvider(resource=Resource.create(names), shutdown_on_exit=False)
        self.provider.add_span_processor(processor)
        self.tracer = self.provider.get_tracer("warren", __version__)
        for kind, callback in (
            (events.MessagePublished, self._published),
            (events.MessageDelivered, self._delivered),
            (events.MessageAcked, self._acked),
            (events.MessageDeadLettered, self._died),
        ):
            self.unsubscribe.append(self.node.events.subscribe(kind, callback))

    async def stop(self) -> None:
        while self.unsubscribe:
            self.unsubscribe.pop()()
        if self.provider is not None:
            await self.broker.loop.run_in_executor(None, self.provider.shutdown)

    # --- events ---

    def _published(self, event: events.MessagePublished) -> None:
        where = event.message.exchange_name or "amq.default"
        self._tell(f"publish {where}", event, {"warren.queues": [_shown(queue) for queue in event.queues]})

    def _delivered(self, event: events.MessageDelivered) -> None:
        told = {QUEUE: _shown(event.queue), "warren.redelivered": event.redelivered}
        self._tell(f"wait {event.queue}", event, told, since_ms=event.message.time_ms)

    def _acked(self, event: events.MessageAcked) -> None:
        self._tell(f"ack {event.queue}", event, {QUEUE: _shown(event.queue)})

    def _died(self, event: events.MessageDeadLettered) -> None:
        told = {QUEUE: _shown(event.queue), "warren.reason": event.reason}
        self._tell(f"die {event.queue}", event, told)

    def _tell(
        self, name: str, event: OfMessage, attributes: Mapping[str, Any], *, since_ms: int | None = None
    ) -> None:
        """Make a span that ends now, and began now or at a time, if the message is sampled."""
        context = sampled_context(event.message)
        if context is None:
            return
        now_ms = self.node.clock.refresh()
        span = self.tracer.start_span(
            _shown(name),
            _parent(context),
            attributes={
                "messaging.system": SYSTEM,
                "messaging.message.body.size": len(event.message.body),
                "messaging.rabbitmq.destination.routing_key": _shown(event.message.key),
                "warren.vhost": _shown(event.vhost),
                **attributes,
            },
            start_time=(now_ms if since_ms is None else min(since_ms, now_ms)) * NANOSECONDS_A_MS,
        )
        span.end(now_ms * NANOSECONDS_A_MS)


def _parent(context: TraceContext) -> Any:
    """The publisher's span, as the SDK wants it."""
    from opentelemetry import trace  # noqa: PLC0415

    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    span = trace.SpanContext(context.trace_id, context.span_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(span))


def _shown(name: str) -> str:
    """A name in UTF-8, as spans need it; names in AMQP are any bytes."""
    return name.encode("utf-8", "replace").decode()
