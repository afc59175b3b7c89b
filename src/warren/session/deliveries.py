"""The outstanding deliveries of a channel: sent, and neither acked nor rejected yet.

Delivery tags count up by one, so the outstanding entries are in a list, each at `tag - base`. To take one is
one access, in whatever order a client acks. The empty slots in front are cut off now and then. A few entries
that stay out for very long would keep all the slots behind them alive: then they move to `old`, a dictionary
in order of tags, so that memory is bounded by the number of outstanding entries.

    old   { 3: entry, 90: entry }    slots  [ -, -, entry, -, entry, entry ]
                                             ^base  ^first             ^delivery_tag
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, takewhile

from warren.amqp.properties import decode_properties
from warren.amqp.table import encode_name
from warren.amqp.traits import add_headers
from warren.amqp.writer import Output
from warren.broker.entry import Entry
from warren.broker.queue import Queue
from warren.broker.rota import Drainable, Rota
from warren.broker.tally import Tally

SLOTS_TO_SPARE = 1024  # so many empty slots are not worth the work of cutting them off
NO_LIMIT = 2**62
DELIVERY_COUNT = encode_name("x-delivery-count")


class Deliveries:
    def __init__(self, output: Output, channel: int, tally: Tally | None = None) -> None:
        self.output = output
        self.channel = channel  # the channel's number
        self.tally = tally or Tally()  # counts of the channel
        self.active = True  # false while the client has stopped deliveries by channel.flow, and at the end
        self.delivery_tag = 0  # the last tag that was given
        self.outstanding = 0  # how many entries are outstanding, in `slots` and `old`
        self.counted = 0  # how many of them count for prefetch limits: those that basic.get took do not
        self.counted_bytes = 0
        self.prefetch_count = 0  # the limit of the whole channel; 0 for none
        self.prefetch_size = 0  # likewise, in bytes
        self.rota: Rota | None = None  # whose turn it is, while the whole channel has a limit
        self.slots: list[Entry | None] = []  # None for entries that are settled
        self.first = 0  # all slots before this index are None
        self.base = 1  # the tag of the first slot
        self.old: dict[int, Entry] = {}  # entries with tags below `base`, in order

    def __repr__(self) -> str:
        return f"<Deliveries of channel {self.channel}: {self.outstanding} outstanding>"

    def limit(self, prefetch_count: int, prefetch_size: int, touched: list[Drainable]) -> None:
        """Limit all consumers of the channel together; 0 stands for no limit."""
        self.prefetch_count = prefetch_count
        self.prefetch_size = prefetch_size
        if not prefetch_count and not prefetch_size:
            self.rota = None
        elif self.rota is None:
            self.rota = Rota(touched)

    def has_room(self, size: int) -> bool:
        """Whether the limits of the whole channel allow one more message of this size."""
        if self.prefetch_count and self.counted >= self.prefetch_count:
            return False
        if self.prefetch_size and self.counted_bytes:
            return self.counted_bytes + size <= self.prefetch_size
        return True

    def send(self, entry: Entry, prefix: bytes, no_ack: bool) -> int:
        """Deliver to a consumer; return the delivery tag. `warren perf throughput` watches this."""
        message = entry.message
        properties = message.properties
        if entry.delivery_count > 0:
            properties = with_delivery_count(entry)
            self.tally.redelivered += 1
        self.delivery_tag += 1
        self.output.deliver(
            self.channel,
            prefix,
            self.delivery_tag,
            entry.delivery_count > 0,
            message.exchange,
            message.routing_key,
            properties,
            message.body,
        )
        self._note(entry, no_ack)
        return self.delivery_tag

    def track(self, entry: Entry, no_ack: bool) -> None:
        """Give the next tag to an entry that goes out by basic.get-ok."""
        self.delivery_tag += 1
        self.tally.got += 1
        self.tally.got_no_ack += no_ack
        self.tally.redelivered += entry.delivery_count > 0
        self._note(entry, no_ack)

    def _note(self, entry: Entry, no_ack: bool) -> None:
        self.tally.delivered += 1
        if not no_ack:
            self.slots.append(entry)
            self.outstanding += 1
            return
        self.tally.delivered_no_ack += 1
        if self.slots:
            self.slots.append(None)
            self.settle_front()
        else:
            self.base += 1

    def is_outstanding(self, delivery_tag: int) -> bool:
        return self.find(delivery_tag) is not None

    def entries(self) -> list[Entry]:
        """All outstanding entries, oldest first."""
        return [*self.old.values(), *(entry for entry in self.slots if entry is not None)]

    def tags(self) -> list[int]:
        """Every outstanding tag, oldest first."""
        return [tag for tag in self.span() if self.is_outstanding(tag)]

    def span(self, above: int = 0) -> Iterator[int]:
        """Every tag above this one that may be outstanding now, oldest first."""
        old = [tag for tag in self.old if tag > above] if above < self.base else []
        return chain(old, range(max(self.base + self.first, above + 1), self.delivery_tag + 1))

    def find(self, delivery_tag: int) -> Entry | None:
        """The outstanding entry with this tag; None if there is none."""
        if delivery_tag < self.base:
            return self.old.get(delivery_tag)
        return self.slots[delivery_tag - self.base] if delivery_tag <= self.delivery_tag else None

    def queues_up_to(self, delivery_tag: int) -> set[Queue]:
        """The queues of all outstanding entries up to this tag."""
        queues = {entry.queue for tag, entry in self.old.items() if tag <= delivery_tag}
        index = self.first
        stop = self._index_behind(delivery_tag)
        last = None
        while index < stop:
            entry = self.slots[index]
            if entry is not None and entry.queue is not last:
                last = entry.queue
                queues.add(last)
            index += 1
        return queues

    def _index_behind(self, delivery_tag: int) -> int:
        """The index of the slot behind this tag's, but not beyond the end of the slots."""
        return min(delivery_tag, self.delivery_tag) - self.base + 1 if delivery_tag >= self.base else 0

    def take(self, delivery_tag: int) -> Entry | None:
        """Take the outstanding entry with this tag; None if there is none."""
        if delivery_tag < self.base:
            entry = self.old.pop(delivery_tag, None)
        elif delivery_tag > self.delivery_tag:
            return None
        else:
            index = delivery_tag - self.base
            entry = self.slots[index]
            self.slots[index] = None
        if entry is not None:
            self.outstanding -= 1
            self.settle_front()
        return entry

    def take_up_to(self, delivery_tag: int, most: int = NO_LIMIT) -> list[Entry]:
        """Take the outstanding entries up to this tag, oldest first, at most `most` of them."""
        taken: list[Entry] = []
        if self.old:
            older = list(islice(takewhile(delivery_tag.__ge__, self.old), most))
            taken += [self.old.pop(tag) for tag in older]
        index = self.first
        stop = self._index_behind(delivery_tag)
        while index < stop and len(taken) < most:
            entry = self.slots[index]
            if entry is not None:
                taken.append(entry)
                self.slots[index] = None
            index += 1
        self.outstanding -= len(taken)
        self.settle_front()
        return taken

    def settle_front(self) -> None:
        """Move `first` past settled slots, and cut those off once they are many."""
        size = len(self.slots)
        if self.outstanding == len(self.old):
            self.base += size
            self.first = 0
            self.slots.clear()
            return
        while self.slots[self.first] is None:
            self.first += 1
        if self.first > SLOTS_TO_SPARE and self.first * 2 > size:
            del self.slots[: self.first]
            self.base += self.first
            self.first = 0
        elif size - self.first > 4 * self.outstanding + SLOTS_TO_SPARE:
            self.retire()

    def retire(self) -> None:
        """Nearly all slots are empty: move the entries that are left to `old`."""
        for index, entry in enumerate(self.slots):
            if entry is not None:
                self.old[self.base + index] = entry
        self.base += len(self.slots)
        self.first = 0
        self.slots.clear()


def with_delivery_count(entry: Entry) -> bytes:
    """The properties of an entry. If its queue tells delivery counts, and the message was delivered before,
    they have the header x-delivery-count.
    """
    properties = entry.message.properties
    if entry.delivery_count == 0 or not entry.queue.rules.tells_delivery_count:
        return properties
    if DELIVERY_COUNT in properties:  # the publisher may have sent one: there must not be two
        decoded = decode_properties(properties)
        decoded.headers = {k: v for k, v in (decoded.headers or {}).items() if k != "x-delivery-count"}
        properties = decoded.encode()
    return add_headers(properties, DELIVERY_COUNT + b"l" + entry.delivery_count.to_bytes(8), False)
