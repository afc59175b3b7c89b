"""What a queue finds around it: all that it shares with the other queues of its vhost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warren.broker.clock import Clock
from warren.broker.events import Events
from warren.broker.flow import Timers
from warren.broker.memory import Memory
from warren.broker.rota import Drainable
from warren.broker.store import MessageLog
from warren.broker.timetable import Timetable
from warren.broker.turns import Turns

if TYPE_CHECKING:
    from warren.broker.dead_letters import DeadLetters
    from warren.broker.queue import Queue


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """`touched_queues` are those to be drained in this turn; `expire` removes a queue that nobody has
    used.
    """

    events: Events
    touched_queues: list[Drainable]
    timers: Timers
    turns: Turns
    memory: Memory
    clock: Clock
    timetable: Timetable
    dead_letters: DeadLetters
    open_overflow: Callable[[], MessageLog | None]
    when_safe: Callable[[Callable[[int], None]], None]
    expire: Callable[[Queue], None]
