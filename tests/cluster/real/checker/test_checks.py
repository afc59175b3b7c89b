"""The checks find what is wrong: each rejects a history that it should, and takes one that is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.real.checker.checks import (
    Reason,
    check_queue,
    invented,
    lost,
    out_of_order,
    repeats,
    without_leader,
)
from tests.cluster.real.checker.history import Delivery, FaultTold, History, Outcome, Publish, Term
from tests.cluster.real.checker.stream_checks import (
    check_stream,
    lost_of_stream,
    not_kept,
    stream_out_of_order,
    two_contents,
    two_offsets,
    with_gaps,
)


def publish(
    message: str, at: float, *, channel: str = "p", confirmed: bool = True, priority: int = 0
) -> Publish:
    outcome = Outcome.CONFIRMED if confirmed else Outcome.UNKNOWN
    return Publish(message, "q", channel, at, priority, outcome, at + 1)


def deliver(
    message: str, at: float, *, again: bool = False, acked: bool = True, consumer: str = "c"
) -> Delivery:
    return Delivery(message, "q", consumer, at, again, at + 0.1 if acked else None)


def read(message: str, offset: int, *, reader: str = "last") -> Delivery:
    return Delivery(message, "q", reader, 50.0 + offset, offset=offset)


def history(*events: Publish | Delivery | Term, ends: dict[str, float] | None = None) -> History:
    return History(
        publishes=[each for each in events if isinstance(each, Publish)],
        deliveries=[each for each in events if isinstance(each, Delivery)],
        terms=[each for each in events if isinstance(each, Term)],
        ends=ends or {},
        shard_of={"q": 3},
    )


RIGHT = history(publish("1", 0), publish("2", 1), deliver("1", 10), deliver("2", 11))


def test_nothing_is_wrong_with_a_history_that_is_right() -> None:
    assert check_queue(RIGHT) == []


def test_confirmed_message_that_nobody_got_is_lost() -> None:
    assert "lost: 1" in lost(history(publish("1", 0)))[0]
    assert "lost: 1" in check_queue(history(publish("1", 0)))[0]
    assert lost(history(publish("1", 0, confirmed=False))) == []


def test_message_that_nobody_sent_is_invented() -> None:
    assert "invented: x" in invented(history(deliver("x", 1)))[0]
    assert "invented: 1" in invented(history(publish("1", 5), deliver("1", 1)))[0]


def test_message_is_new_once() -> None:
    found = repeats(history(publish("1", 0), deliver("1", 1, acked=False), deliver("1", 9), ends={"c": 5}))
    assert "twice as if it were new: 1" in found.wrong[0]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            history(deliver("1", 1, acked=False), deliver("1", 9, again=True, consumer="d"), ends={"c": 5}),
            Reason.UNACKED,
        ),
        (
            history(deliver("1", 1, acked=False), Term(3, 2, "b", 5), deliver("1", 9, again=True)),
            Reason.UNACKED,
        ),
        (history(deliver("1", 1), Term(3, 2, "b", 5), deliver("1", 9, again=True)), Reason.LEADER),
        (
            history(deliver("1", 1), deliver("1", 9, again=True, consumer="d"), ends={"c": 5}),
            Reason.CONNECTION,
        ),
    ],
)
def test_message_comes_again_for_a_reason(found: History, reason: Reason) -> None:
    assert repeats(found).reasons == {reason: 1}
    assert repeats(found).wrong == []


@pytest.mark.parametrize(
    "found",
    [
        history(deliver("1", 1), deliver("1", 9, again=True)),
        history(deliver("1", 1, acked=False), deliver("1", 9, again=True)),
        history(deliver("1", 20), Term(3, 2, "b", 5), deliver("1", 30, again=True)),
        history(deliver("1", 1), deliver("1", 90, again=True), ends={"c": 60}),
        history(deliver("1", 1), deliver("1", 3, again=True), ends={"c": 15}),
    ],
)
def test_message_that_comes_again_for_no_reason_is_found(found: History) -> None:
    assert "again for no reason: 1" in repeats(found).wrong[0]


def test_terms_of_other_shards_explain_nothing() -> None:
    found = history(publish("1", 0), deliver("1", 1), Term(4, 2, "b", 5), deliver("1", 9, again=True))
    assert repeats(found.of_queue("q")).wrong != []


@pytest.mark.parametrize(
    "found",
    [
        history(
            publish("1", 0, confirmed=False),
            publish("2", 0.1, confirmed=False),
            deliver("2", 10),
            deliver("1", 11),
        ),
        history(publish("1", 0), publish("2", 5, channel="other"), deliver("2", 10), deliver("1", 11)),
    ],
)
def test_messages_out_of_order_are_found(found: History) -> None:
    assert "out of order: 1" in out_of_order(found)[0]


def test_order_that_nobody_can_tell_is_no_matter() -> None:
    at_once = history(publish("1", 0), publish("2", 0.5, channel="o"), deliver("2", 10), deliver("1", 11))
    assert out_of_order(at_once) == []
    again = history(
        publish("1", 0), publish("2", 3), deliver("1", 10), deliver("2", 11), deliver("1", 12, again=True)
    )
    assert out_of_order(again) == []
    urgent = history(publish("1", 0), publish("2", 3, priority=2), deliver("2", 10), deliver("1", 11))
    assert out_of_order(urgent) == []


def test_shard_needs_a_leader_that_runs() -> None:
    assert without_leader({0: "run1", 1: "run2"}, ["run1", "run2"], 2) == []
    assert "shard 1" in without_leader({0: "run1", 1: "dead"}, ["run1"], 2)[0]
    assert "shard 1" in without_leader({0: "run1"}, ["run1"], 2)[0]


STREAM = history(publish("1", 0), publish("2", 1), read("1", 0), read("2", 1))


def stream(*reads: Delivery) -> History:
    return replace(STREAM, deliveries=list(reads))


def test_nothing_is_wrong_with_a_stream_that_is_right() -> None:
    assert check_stream(STREAM, last_reader="last") == []


def test_offset_never_stands_for_two_messages() -> None:
    assert "two contents: offset 0" in two_contents(stream(read("1", 0, reader="a"), read("2", 0)))[0]


def test_message_that_was_sent_once_is_in_a_stream_once() -> None:
    assert "twice in the stream: 1" in two_offsets(stream(read("1", 0), read("1", 1)))[0]


def test_reader_gets_all_offsets_in_turn() -> None:
    assert "offset 2 after 0" in with_gaps(stream(read("1", 0), read("2", 2)))[0]


def test_what_was_read_is_kept() -> None:
    whole = [read("1", 0)]
    assert "not kept: offset 1" in not_kept(stream(*whole, read("2", 1, reader="a")), whole)[0]
    whole = [read("2", 1)]
    assert "begins at offset 1" in not_kept(stream(*whole), whole)[0]


def test_confirmed_message_is_in_the_stream() -> None:
    assert "lost: 2" in lost_of_stream(STREAM, [read("1", 0)])[0]
    assert "lost: 1" in check_stream(stream(), last_reader="last")[0]


def test_stream_is_in_the_order_of_publishing() -> None:
    assert "out of order: 1" in stream_out_of_order(STREAM, [read("2", 0), read("1", 1)])[0]


def test_history_is_saved_as_lines_in_the_order_of_time(tmp_path: Path) -> None:
    found = history(publish("1", 2), deliver("1", 3), Term(3, 1, "a", 1), ends={"c": 4})
    found.faults.append(FaultTold(0, "kill", "a"))
    found.save(tmp_path / "history")
    lines = (tmp_path / "history").read_text().splitlines()
    events = ["fault", "term", "publish", "delivery", "end"]
    assert [f'"event": "{event}"' in line for event, line in zip(events, lines, strict=True)] == [True] * 5
