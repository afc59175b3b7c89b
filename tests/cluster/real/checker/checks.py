"""What must hold of the history of a queue, whatever happened to the cluster. Each check says what it found
wrong, as lines for whoever has to find out why; none means that all is well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from tests.cluster.real.checker.history import Delivery, History, Outcome, Publish

LINES_MAX = 20  # of one check
BEFORE_SECONDS = 5.0  # a message that came so shortly after a new leader opened may be from the old one
NOTICED_SECONDS = 5.0  # a client may notice so late that its connection has ended
LAST_ACKS_SECONDS = 20.0  # acks that were sent so shortly before a connection ended may be lost


class Reason(StrEnum):
    """Why a message may come again."""

    UNACKED = "it was not acked"
    CONNECTION = "its ack may be lost with the connection"
    LEADER = "its ack may be lost with the leader"


@dataclass(slots=True)
class Repeats:
    """Messages that came more than once: how many, by reason, and those without any."""

    reasons: Counter[Reason] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def check_queue(history: History, *, ordered: bool = True) -> list[str]:
    """All checks of the part of a history that is about one queue. Its order can be told if there was one
    consumer at a time.
    """
    found = [*lost(history), *invented(history), *repeats(history).wrong]
    return [*found, *out_of_order(history)] if ordered else found


def lost(history: History) -> list[str]:
    """Every message that was confirmed is delivered."""
    delivered = {delivery.message for delivery in history.deliveries}
    return shortened(
        f"lost: {each.message} was confirmed at {each.ended:.3f}, and nobody got it"
        for each in history.publishes
        if each.outcome is Outcome.CONFIRMED and each.message not in delivered
    )


def invented(history: History) -> list[str]:
    """Nothing is delivered that was not published, or before it was."""
    invoked = {each.message: each.invoked for each in history.publishes}
    return shortened(
        f"invented: {each.message} came to {each.consumer} at {each.at:.3f}, and was not published"
        for each in history.deliveries
        if each.message not in invoked or each.at < invoked[each.message]
    )


def repeats(history: History) -> Repeats:
    """A message comes again if it was not acked, or if its ack may be lost; it says so then."""
    found = Repeats()
    by_message: defaultdict[str, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        by_message[delivery.message].append(delivery)
    for deliveries in by_message.values():
        if len(deliveries) > 1:
            _look_at_repeats(history, sorted(deliveries, key=lambda each: each.at), found)
    found.wrong = shortened(found.wrong)
    return found


def _look_at_repeats(history: History, deliveries: list[Delivery], found: Repeats) -> None:
    unflagged = [each for each in deliveries if not each.redelivered]
    if len(unflagged) > 1:
        found.wrong.append(f"twice as if it were new: {_told(unflagged)}")
    for earlier, later in pairwise(deliveries):
        reason = _reason(history, earlier, later)
        if reason is None:
            found.wrong.append(f"again for no reason: {_told((earlier, later))}")
        else:
            found.reasons[reason] += 1


def _reason(history: History, earlier: Delivery, later: Delivery) -> Reason | None:
    ended = history.ends.get(earlier.consumer)
    has_ended = ended is not None and ended <= later.at + NOTICED_SECONDS
    if earlier.acked is None:
        # A leader that does not lead any more may have told its consumer so after the next one delivered.
        is_free = has_ended or _has_new_leader(history, earlier.at, later.at)
        return Reason.UNACKED if is_free else None
    if _has_new_leader(history, earlier.at, later.at):
        return Reason.LEADER
    if has_ended and ended is not None and earlier.acked > ended - LAST_ACKS_SECONDS:
        return Reason.CONNECTION
    return None


def _has_new_leader(history: History, since: float, until: float) -> bool:
    return any(since - BEFORE_SECONDS <= term.at <= until for term in history.terms)


def _told(deliveries: Iterable[Delivery]) -> str:
    return "; ".join(
        f"{each.message} to {each.consumer} at {each.at:.3f}, "
        f"{'redelivered' if each.redelivered else 'not redelivered'}, "
        f"{'not acked' if each.acked is None else f'acked at {each.acked:.3f}'}"
        for each in deliveries
    )


def out_of_order(history: History) -> list[str]:
    """Messages come in the order in which they were published, if that can be told: on one channel, or one
    was confirmed before the other was sent. Only the first delivery of each counts.
    """
    published = {each.message: each for each in history.publishes}
    first = dict.fromkeys(each.message for each in sorted(history.deliveries, key=lambda each: each.at))
    found: list[str] = []
    came = [published[message] for message in first if message in published]
    for priority in {each.priority for each in came}:
        same = [each for each in came if each.priority == priority]
        found += in_wrong_order(same, history.publishes)
    return shortened(found)


def in_wrong_order(found: list[Publish], publishes: list[Publish]) -> list[str]:
    """What is wrong with the order in which messages were found."""
    place = {each.message: number for number, each in enumerate(publishes)}
    return [*_by_channel(found, place), *_by_confirms(found)]


def _by_channel(found: list[Publish], place: Mapping[str, int]) -> Iterable[str]:
    last: dict[str, Publish] = {}
    for each in found:
        before = last.get(each.channel)
        if before is not None and place[each.message] < place[before.message]:
            yield f"out of order: {each.message} after {before.message}, both of channel {each.channel}"
        else:
            last[each.channel] = each


def _by_confirms(found: list[Publish]) -> Iterable[str]:
    earliest: Publish | None = None  # confirmed, of those that came later
    for each in reversed(found):
        if earliest is not None and earliest.ended < each.invoked:
            yield (
                f"out of order: {earliest.message}, confirmed at {earliest.ended:.3f}, "
                f"after {each.message}, sent at {each.invoked:.3f}"
            )
        if each.outcome is Outcome.CONFIRMED and (earliest is None or each.ended < earliest.ended):
            earliest = each


def without_leader(leaders: Mapping[int, str | None], runs: Iterable[str], shards: int) -> list[str]:
    """Each shard is led by a process that runs."""
    running = set(runs)
    return [
        f"shard {number} has no leader that runs, but {leaders.get(number)!r}"
        for number in range(shards)
        if leaders.get(number) not in running
    ]


def shortened(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    more = len(found) - LINES_MAX
    return found if more <= 0 else [*found[:LINES_MAX], f"… and {more} more of these"]
