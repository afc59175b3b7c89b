"""The order in which lists come: RabbitMQ's, if the request names none.

| list                        | by                                                              |
|-----------------------------|-----------------------------------------------------------------|
| most                        | vhost, then name                                                |
| bindings                    | vhost, source, destination, routing key, properties key         |
| permissions                 | vhost, user, then exchange                                      |
| policies                    | priority, from the lowest, then vhost and name                  |
| consumers                   | connection, channel, then consumer tag                          |

Names go by their characters' numbers. What is equal in the column that a request sorts by is in this order as
well. To sort very many items at once would hold the loop, so they are sorted in runs, which are merged.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Any, TypeVar, overload

from warren.broker.queue import Queue
from warren.broker.vhost import Vhost
from warren.server.pace import at_a_pace

T = TypeVar("T")

SORTED_AT_ONCE_MAX = 250  # items, whose keys are made in the same turn
NAMES_SORTED_AT_ONCE_MAX = 5_000
NAMES_MERGED_AT_ONCE_MAX = 50_000
BACKWARDS = slice(None, None, -1)


async def in_order(
    items: Sequence[T], key: Callable[[T], Any], *, reverse: bool = False, most: int | None = None
) -> list[T]:
    """The items by a key, and those of equal keys as they were; only the first ones, if `most` is given."""
    order = itemgetter(0)
    runs: list[list[tuple[Any, T]]] = []
    for first in range(0, len(items), SORTED_AT_ONCE_MAX):
        keyed = [(key(item), item) for item in items[first : first + SORTED_AT_ONCE_MAX]]
        runs.append(sorted(keyed, key=order, reverse=reverse))
        await asyncio.sleep(0)
    merged = heapq.merge(*runs, key=order, reverse=reverse)
    return [item async for _key, item in at_a_pace(islice(merged, most))]


async def names_in_order(names: list[str]) -> list[str]:
    """Plain names, which are sorted and merged much faster than items with keys."""
    runs: list[list[str]] = []
    for first in range(0, len(names), NAMES_SORTED_AT_ONCE_MAX):
        runs.append(sorted(names[first : first + NAMES_SORTED_AT_ONCE_MAX]))
        await asyncio.sleep(0)
    if len(names) <= NAMES_MERGED_AT_ONCE_MAX:
        return sorted(chain.from_iterable(runs))  # which finds the runs, and merges them
    return [name async for name in at_a_pace(heapq.merge(*runs))]


@dataclass(frozen=True)
class KnownOrder:
    """The names of a vhost's queues in order, as they were at a version of the vhost."""

    vhost: Vhost
    version: int
    names: list[str]


class QueueOrder:
    """Remembers the order of the queues of each vhost until one comes or goes, since tools ask for page after
    page of the same list.
    """

    def __init__(self, vhosts: Mapping[str, Vhost]) -> None:
        self.vhosts = vhosts  # all that there are
        self.known: dict[str, KnownOrder] = {}  # by vhost

    async def names_of(self, vhost: Vhost) -> list[str]:
        """Not to be changed by the caller."""
        known, version = self.known.get(vhost.name), vhost.version.number
        if known is not None and known.vhost is vhost and known.version == version:
            return known.names
        names = await names_in_order([*vhost.queues, *vhost.internal_queues])
        self.known[vhost.name] = KnownOrder(vhost, version, names)
        for name in self.known.keys() - self.vhosts.keys():
            del self.known[name]
        return names

    async def of(self, vhosts: Sequence[Vhost]) -> OrderedQueues:
        """The queues of these vhosts, which are in order."""
        return OrderedQueues([(vhost, await self.names_of(vhost)) for vhost in vhosts])


class OrderedQueues(Sequence[Queue]):
    """Queues in order. A queue is looked up when it is asked for, since mostly one page of them is, and left
    out if it is gone by then.
    """

    def __init__(self, parts: Sequence[tuple[Vhost, list[str]]]) -> None:
        self.parts = parts  # vhosts with the names of their queues
        self.length = sum(len(names) for _vhost, names in parts)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Queue]:
        return self._between(0, self.length)

    @overload
    def __getitem__(self, place: int) -> Queue: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Queue]: ...

    def __getitem__(self, place: int | slice) -> Queue | Sequence[Queue]:
        if place == BACKWARDS:
            return OrderedQueues([(vhost, names[::-1]) for vhost, names in reversed(self.parts)])
        if isinstance(place, slice) and place.step is None:
            first, last, _step = place.indices(self.length)
            return list(self._between(first, last))
        return list(self)[place]

    def _between(self, first: int, last: int) -> Iterator[Queue]:
        begin = 0  # the place of the first queue of a vhost
        for vhost, names in self.parts:
            for name in names[max(first - begin, 0) : max(last - begin, 0)]:
                queue = vhost.queues.get(name) or vhost.internal_queues.get(name)
                if queue is not None:
                    yield queue
            begin += len(names)
