"""Transactions on etcd's keys, as plain values: what is compared and written, and what came of it.

Every change in the cluster is one of these. What always holds: a transaction whose outcome is not known is
neither repeated nor given up by whoever sent it, before they have read what is there now.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

OPERATIONS_MAX = 128  # etcd's own limit, of compares and of writes in one transaction
ABSENT = 0  # as a revision: there is no such key


class KeyValue(NamedTuple):
    """A key as it is at some revision."""

    key: str
    value: bytes
    create_revision: int  # of the change that made it; no other key is made by that change under this name
    mod_revision: int  # of the last change
    version: int  # how often it was put since it was made


class Compare(NamedTuple):
    """The key was last changed by this revision, or is absent."""

    key: str
    mod_revision: int


class CompareCreated(NamedTuple):
    """The key was made by this revision, whatever was put there since."""

    key: str
    create_revision: int


class Put(NamedTuple):
    key: str
    value: bytes


class Delete(NamedTuple):
    key: str


Comparison: TypeAlias = Compare | CompareCreated
Write: TypeAlias = Put | Delete


class Transaction(NamedTuple):
    """All writes are done, if all compares hold. If one does not, the keys in `reads` are read instead."""

    compares: tuple[Comparison, ...]
    writes: tuple[Write, ...]
    reads: tuple[str, ...] = ()


class Outcome(Enum):
    """What came of a transaction."""

    SUCCEEDED = "succeeded"
    FAILED = "a compare failed"  # nothing was written
    UNKNOWN = "unknown"  # the answer was lost: it may have been done, or may still be
    NOT_SENT = "not sent"  # or refused as a whole: nothing was written, and nothing will be


class Answer(NamedTuple):
    outcome: Outcome
    revision: int = 0  # of etcd when it answered; of the change, if the transaction succeeded
    read: tuple[KeyValue | None, ...] = ()  # what `reads` names, if a compare failed
    reason: str = ""  # why the outcome is unknown, or nothing was sent; for an operator


class Changed(NamedTuple):
    """What a watch tells of one key: what it is now, or that it is gone."""

    key: str
    revision: int  # of the change
    now: KeyValue | None
