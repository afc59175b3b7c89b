"""The states of a connection, and the transitions between them; `Connection.become` alone makes them.

AWAITING_HEADER → AWAITING_START_OK → AUTHENTICATING → AWAITING_TUNE_OK → AWAITING_OPEN → OPEN
                                                             (any) → CLOSING → CLOSED
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    AWAITING_HEADER = auto()
    AWAITING_START_OK = auto()
    AUTHENTICATING = auto()  # the credentials are checked; the client's frames wait
    AWAITING_TUNE_OK = auto()
    AWAITING_OPEN = auto()
    OPEN = auto()
    CLOSING = auto()  # the broker has sent connection.close and waits for close-ok
    CLOSED = auto()


ENDING = {State.CLOSING, State.CLOSED}
TRANSITIONS = {
    State.AWAITING_HEADER: {State.AWAITING_START_OK, *ENDING},
    State.AWAITING_START_OK: {State.AUTHENTICATING, *ENDING},
    State.AUTHENTICATING: {State.AWAITING_TUNE_OK, *ENDING},
    State.AWAITING_TUNE_OK: {State.AWAITING_OPEN, *ENDING},
    State.AWAITING_OPEN: {State.OPEN, *ENDING},
    State.OPEN: ENDING,
    State.CLOSING: {State.CLOSED},
    State.CLOSED: set(),
}
