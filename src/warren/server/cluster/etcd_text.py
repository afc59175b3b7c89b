"""Requests to etcd's JSON gateway and its answers, to and from our values. Keys and values are base64, and
numbers of 64 bits are texts; what is false or 0 is left out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from warren.cluster.transactions import (
    Answer,
    Changed,
    Compare,
    Comparison,
    KeyValue,
    Outcome,
    Put,
    Transaction,
    Write,
)

Json = dict[str, Any]  # an object as etcd writes it


def encoded(text: str | bytes) -> str:
    return b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def prefix_end(prefix: str) -> str:
    """The first key behind all that begin with a prefix, which ends with an ASCII character."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def transaction_request(wanted: Transaction) -> Json:
    return {
        "compare": [_comparison(each) for each in wanted.compares],
        "success": [_write(each) for each in wanted.writes],
        "failure": [_read(key) for key in wanted.reads],
    }


def _read(key: str) -> Json:
    return {"request_range": {"key": encoded(key)}}


def _comparison(wanted: Comparison) -> Json:
    if isinstance(wanted, Compare):
        target, field, revision = "MOD", "mod_revision", wanted.mod_revision
    else:
        target, field, revision = "CREATE", "create_revision", wanted.create_revision
    return {"key": encoded(wanted.key), "result": "EQUAL", "target": target, field: str(revision)}


def _write(wanted: Write) -> Json:
    if isinstance(wanted, Put):
        return {"request_put": {"key": encoded(wanted.key), "value": encoded(wanted.value)}}
    return {"request_delete_range": {"key": encoded(wanted.key)}}


def transaction_answer(wanted: Transaction, answer: Json) -> Answer:
    revision = revision_of(answer)
    if answer.get("succeeded"):
        return Answer(Outcome.SUCCEEDED, revision)
    return Answer(Outcome.FAILED, revision, keys_read(wanted.reads, answer))


def reads_request(keys: Sequence[str]) -> Json:
    return {"success": [_read(key) for key in keys]}


def keys_read(keys: Sequence[str], answer: Json) -> tuple[KeyValue | None, ...]:
    found = [key_values(each["response_range"]) for each in answer.get("responses", [])]
    if len(found) != len(keys):
        raise ValueError(f"{len(found)} answers to {len(keys)} reads")
    return tuple(kvs[0] if kvs else None for kvs in found)


def revision_of(answer: Json) -> int:
    return int(answer["header"].get("revision", 0))


def key_values(answer: Json) -> list[KeyValue]:
    return [key_value(each) for each in answer.get("kvs", [])]


def key_value(found: Json) -> KeyValue:
    return KeyValue(
        b64decode(found["key"]).decode(),
        b64decode(found.get("value", "")),
        int(found.get("create_revision", 0)),
        int(found["mod_revision"]),
        int(found.get("version", 0)),
    )


def changes(answer: Json) -> list[Changed]:
    """What a message of a watch tells, in order of revisions."""
    found = []
    for event in answer.get("events", []):
        now = key_value(event["kv"])
        is_gone = event.get("type") == "DELETE"
        found.append(Changed(now.key, now.mod_revision, None if is_gone else now))
    return found
