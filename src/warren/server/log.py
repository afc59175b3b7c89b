"""The log: events with fields, on stderr, readable text on a terminal and JSON lines otherwise.

The broker logs through the standard logger `warren`. A program that embeds the broker decides itself where
those lines go; only the command `warren` configures that, by `configure`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TextIO

import structlog

from warren.broker import events
from warren.broker.events import Event, Events

WHAT_TO_LOG: dict[type[Event], tuple[int, str]] = {
    events.ConnectionOpened: (logging.INFO, "connection opened"),
    events.ConnectionClosed: (logging.INFO, "connection closed"),
    events.ConnectionBlocked: (logging.WARNING, "connection blocked"),
    events.ConnectionUnblocked: (logging.INFO, "connection unblocked"),
    events.AuthenticationFailed: (logging.WARNING, "authentication failed"),
    events.AdministrativeAction: (logging.INFO, "administrative action"),
    events.ChannelClosed: (logging.DEBUG, "channel closed"),
    events.VhostCreated: (logging.INFO, "vhost created"),
    events.VhostDeleted: (logging.INFO, "vhost deleted"),
    events.VhostMetadataChanged: (logging.INFO, "vhost metadata changed"),
    events.TracingChanged: (logging.INFO, "tracing switched"),
    events.UserChanged: (logging.INFO, "user changed"),
    events.VhostLimitsChanged: (logging.INFO, "vhost limits changed"),
    events.UserLimitsChanged: (logging.INFO, "user limits changed"),
    events.PolicyChanged: (logging.INFO, "policy changed"),
    events.PolicyDeleted: (logging.INFO, "policy deleted"),
    events.ParameterSet: (logging.INFO, "parameter set"),
    events.ParameterCleared: (logging.INFO, "parameter cleared"),
    events.ShovelStarted: (logging.INFO, "shovel started"),
    events.ShovelFailed: (logging.WARNING, "shovel failed"),
    events.ShovelStopped: (logging.INFO, "shovel stopped"),
    events.GlobalParameterSet: (logging.INFO, "global parameter set"),
    events.GlobalParameterCleared: (logging.INFO, "global parameter cleared"),
    events.ExchangeCreated: (logging.DEBUG, "exchange created"),
    events.ExchangeDeleted: (logging.DEBUG, "exchange deleted"),
    events.QueueCreated: (logging.DEBUG, "queue created"),
    events.QueueDeleted: (logging.DEBUG, "queue deleted"),
    events.QueuePaused: (logging.INFO, "queue paused or resumed"),
    events.QueueExpired: (logging.INFO, "queue expired"),
    events.ActiveConsumerChanged: (logging.INFO, "active consumer changed"),
    events.ConsumerTimedOut: (logging.WARNING, "consumer timed out"),
    events.AlarmRaised: (logging.WARNING, "alarm raised"),
    events.AlarmCleared: (logging.WARNING, "alarm cleared"),
}


def get_logger() -> structlog.stdlib.BoundLogger:
    log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger("warren"),
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return log


def log_events(
    log: structlog.stdlib.BoundLogger, source: Events, *, least: int = logging.DEBUG
) -> Callable[[], None]:
    """Log the broker's events of this level at least. Those that the log level hides are not subscribed to,
    so they cost nothing. Returns a function that ends this.
    """

    def failed(event: events.Failure) -> None:
        log.error("internal error", connection=event.connection, exc_info=event.error)

    ends = [source.subscribe(events.Failure, failed)]
    for kind, (level, text) in WHAT_TO_LOG.items():
        if level >= least and logging.getLogger("warren").isEnabledFor(level):
            ends.append(source.subscribe(kind, _Writer(log, level, text)))

    def end() -> None:
        for end_one in ends:
            end_one()

    return end


class _Writer:
    """Logs events of one kind."""

    def __init__(self, log: structlog.stdlib.BoundLogger, level: int, text: str) -> None:
        self.log, self.level, self.text = log, level, text

    def __call__(self, event: Event) -> None:
        self.log.log(self.level, self.text, **asdict(event))


def configure(level: str, stream: TextIO = sys.stderr) -> None:
    """Send all log lines to `stream`, for the command `warren`. Tracebacks are without local variables, which
    may have secrets in them.
    """
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if stream.isatty()
        else structlog.processors.JSONRenderer()
    )
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not stream.isatty():
        shared.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    set_level(level)


def set_level(level: str) -> None:
    logging.getLogger("warren").setLevel(level.upper())
