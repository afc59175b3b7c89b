"""The life of a segment: the states it goes through, and the only transitions there are.

Theory of operation
-------------------
A segment is in one state of `Life`, which says what may still be done with it:

    OPEN ────────► CLOSED ────────► COMPLETE        records are appended only while it is OPEN
      │   the log     │  the group      │
      │   rolls       │  commit has     │
      │               │  written all    │
      └───────────────┴─────────────────┴──► DROPPED ────────► REMOVED
                   the log needs none of its       the group commit is done with
                   messages any more               its files: they are deleted

Independently of that it is in one state of `OnDisk`, which says what a power cut would leave of its name:

    ABSENT ────────► MADE ────────► NAMED           only a round of a NAMED segment can be made safe by the
            a file of        a round                journal: a record there names the file by its path, and
            it is made       has synced it          one whose name is not safe might not be found again

The two do not depend on each other. A log may roll several times in one turn, so that a segment is CLOSED
before its file is made. A segment that recovery has found is OPEN, CLOSED or COMPLETE, but only MADE: its
name is there, and nobody knows if it was ever synced.

Who asks for which transition:

    the logs            CLOSED when they roll, DROPPED when nothing in the segment is wanted any more
    the group commit    MADE, NAMED, COMPLETE, REMOVED
    recovery            MADE for each segment found, CLOSED and COMPLETE for all but the last one

`Segment.enter` is the only code that changes a state. It looks the transition up in TRANSITIONS, and refuses
any other with an AssertionError. What comes later, such as a segment that is set aside, is another state and
another row of the table.

Everything else that a segment knows of itself is data, and independent of its life: where its bytes are
(`end`, `written`, `gathered`, `flying`), whether the group commit has it in a list (`dirty`, `marked`,
`rewriting`), and whether it is `volatile` or `damaged`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias


class Life(Enum):
    """What may still be done with a segment."""

    OPEN = auto()
    """It is the tail of its log, or may become it: records are appended."""
    CLOSED = auto()
    """It gets no more records. Some of those it has may not be in its file yet."""
    COMPLETE = auto()
    """All its records are in its file, and its index is written, or about to be."""
    DROPPED = auto()
    """No message in it is wanted. Its files are deleted once the disk is done with them."""
    REMOVED = auto()
    """Its files are deleted, or about to be. Nothing is written to them any more."""


class OnDisk(Enum):
    """What a power cut would leave of a segment's name."""

    ABSENT = auto()
    """No file of it was made."""
    MADE = auto()
    """A file of it may be there, but a power cut may take its name away."""
    NAMED = auto()
    """A sync has covered the name of its file, or none is wanted, since it is volatile."""


State: TypeAlias = Life | OnDisk

TRANSITIONS: Mapping[State, frozenset[State]] = {
    Life.OPEN: frozenset({Life.CLOSED, Life.DROPPED}),
    Life.CLOSED: frozenset({Life.COMPLETE, Life.DROPPED}),
    Life.COMPLETE: frozenset({Life.DROPPED}),
    Life.DROPPED: frozenset({Life.REMOVED}),
    Life.REMOVED: frozenset(),
    OnDisk.ABSENT: frozenset({OnDisk.MADE}),
    OnDisk.MADE: frozenset({OnDisk.NAMED}),
    OnDisk.NAMED: frozenset(),
}
