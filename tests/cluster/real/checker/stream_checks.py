"""What must hold of the history of a stream. Its last reader read all of it, after everything was healed."""

from __future__ import annotations

from collections import defaultdict

from tests.cluster.real.checker.checks import in_wrong_order, invented, shortened
from tests.cluster.real.checker.history import Delivery, History, Outcome


def check_stream(history: History, *, last_reader: str) -> list[str]:
    """All checks of the part of a history that is about one stream."""
    whole = [each for each in history.deliveries if each.consumer == last_reader]
    return [
        *invented(history),
        *two_contents(history),
        *two_offsets(history),
        *with_gaps(history),
        *not_kept(history, whole),
        *lost_of_stream(history, whole),
        *stream_out_of_order(history, whole),
    ]


def two_contents(history: History) -> list[str]:
    """An offset has one content for ever, whoever reads it."""
    content: dict[int | None, Delivery] = {}
    found = []
    for each in history.deliveries:
        first = content.setdefault(each.offset, each)
        if first.message != each.message:
            found.append(
                f"two contents: offset {each.offset} was {first.message} for {first.consumer} "
                f"at {first.at:.3f}, "
                f"and {each.message} at {each.at:.3f} for {each.consumer}"
            )
    return shortened(found)


def two_offsets(history: History) -> list[str]:
    """A message that was sent once is there once."""
    offsets: defaultdict[str, set[int | None]] = defaultdict(set)
    for each in history.deliveries:
        offsets[each.message].add(each.offset)
    return shortened(
        f"twice in the stream: {message} at offsets {sorted(found, key=str)}"
        for message, found in offsets.items()
        if len(found) > 1
    )


def with_gaps(history: History) -> list[str]:
    """Each reader gets one offset after the other."""
    last: dict[str, int] = {}
    found = []
    for each in history.deliveries:
        assert each.offset is not None, f"{each.message} was read from a stream, and has no offset"
        before = last.get(each.consumer)
        if before is not None and each.offset != before + 1:
            found.append(f"a gap: {each.consumer} got offset {each.offset} after {before}")
        last[each.consumer] = each.offset
    return shortened(found)


def not_kept(history: History, whole: list[Delivery]) -> list[str]:
    """What anybody has read is there at the end, from offset 0 on."""
    kept = {each.offset for each in whole}
    found = [
        f"not kept: offset {each.offset}, {each.message}, which {each.consumer} read at {each.at:.3f}"
        for each in history.deliveries
        if each.offset not in kept
    ]
    if whole and whole[0].offset != 0:
        found.insert(0, f"not kept: the stream begins at offset {whole[0].offset}")
    return shortened(found)


def lost_of_stream(history: History, whole: list[Delivery]) -> list[str]:
    """Every message that was confirmed is there at the end."""
    kept = {each.message for each in whole}
    return shortened(
        f"lost: {each.message} was confirmed at {each.ended:.3f}, and is not in the stream"
        for each in history.publishes
        if each.outcome is Outcome.CONFIRMED and each.message not in kept
    )


def stream_out_of_order(history: History, whole: list[Delivery]) -> list[str]:
    """Messages are in the order in which they were published."""
    published = {each.message: each for each in history.publishes}
    found = [published[each.message] for each in whole if each.message in published]
    return shortened(in_wrong_order(found, history.publishes))
