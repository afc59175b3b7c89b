"""The records of the shards in etcd: read, watched, and changed by compare-and-swap.

<prefix>shards/<number>    {"epoch": 7, "leader": {…}, "replicas": […], "isr": […], …}
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from structlog.stdlib import BoundLogger

from warren.cluster.config import BadRecord, Known, ShardRecord, read_record, record_text
from warren.cluster.effects import CasAnswer
from warren.cluster.transactions import (
    ABSENT,
    OPERATIONS_MAX,
    Compare,
    KeyValue,
    Outcome,
    Put,
    Transaction,
)
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_errors import EtcdError
from warren.server.cluster.tasks import Tasks

RETRY_SECONDS = 0.5  # after etcd could not be reached


class ShardRecords:
    """Asks etcd, and calls back with what it says."""

    def __init__(
        self,
        etcd: Etcd,
        prefix: str,
        log: BoundLogger,
        *,
        learn: Callable[[int, Known], None],
        report: Callable[[Exception], None],
    ) -> None:
        self.etcd = etcd
        self.prefix = prefix + "shards/"
        self.log = log
        self.learn = learn  # called with the number of a shard and its record, when the record was seen
        self.tasks = Tasks(report)  # all that run
        self.asked: list[tuple[int, Callable[[Known], None]]] = []  # reads of this turn of the event loop

    def start(self) -> None:
        """Follow all records from now on."""
        self.tasks.repeat(self._follow, pause_seconds=RETRY_SECONDS)

    async def stop(self) -> None:
        await self.tasks.stop()

    # --- what the protocol asks ---

    def read(self, shard: int, then: Callable[[Known], None]) -> None:
        """Call back with the record, by a linearizable read; not at all, if that fails or there is none. What
        is asked in one turn is one request.
        """
        if not self.asked:
            self.tasks.spawn(self._read_asked())
        self.asked.append((shard, then))

    async def _read_asked(self) -> None:
        asked, self.asked = self.asked, []
        for begin in range(OPERATIONS_MAX, len(asked), OPERATIONS_MAX):
            self.tasks.spawn(self._read(asked[begin : begin + OPERATIONS_MAX]))
        await self._read(asked[:OPERATIONS_MAX])

    async def _read(self, asked: list[tuple[int, Callable[[Known], None]]]) -> None:
        shards = [shard for shard, _ in asked]
        try:
            found = await self.etcd.get_all([self._key(shard) for shard in shards])
        except EtcdError as error:
            self.log.debug("records of shards cannot be read", shards=shards, reason=str(error))
            return
        for (shard, then), kv in zip(asked, found, strict=True):
            known = None if kv is None else self._known(kv)
            if known is not None:
                self._call(then, known, shard)

    def swap(self, shard: int, revision: int, record: ShardRecord, then: Callable[[CasAnswer], None]) -> None:
        """Write a record if the one in etcd has this revision still. Call back with what is there then, or
        with why that is not known.
        """
        self.tasks.spawn(self._swap(shard, revision, record, then))

    async def _swap(
        self, shard: int, revision: int, record: ShardRecord, then: Callable[[CasAnswer], None]
    ) -> None:
        key = self._key(shard)
        put = Put(key, record_text(record).encode())
        try:
            answer = await self.etcd.txn(Transaction((Compare(key, revision),), (put,), (key,)))
        except Exception:
            then(Outcome.UNKNOWN)
            raise
        if answer.outcome is Outcome.SUCCEEDED:
            then(Known(answer.revision, record))
        elif answer.outcome is Outcome.NOT_SENT:
            then(Outcome.NOT_SENT)
        else:
            there = answer.read[0] if answer.read else None
            known = None if there is None else self._known(there)
            then(Outcome.UNKNOWN if known is None else known)

    async def create(self, records: list[ShardRecord]) -> None:
        """Write the first records of shards that have none yet."""
        for shard, record in enumerate(records):
            put = Put(self._key(shard), record_text(record).encode())
            await self.etcd.txn(Transaction((Compare(put.key, ABSENT),), (put,)))

    # --- following ---

    async def _follow(self) -> None:
        try:
            await self._watch()
        except EtcdError as error:
            self.log.debug("the records of shards cannot be followed", reason=str(error))

    async def _watch(self) -> None:
        loaded = await self.etcd.load(self.prefix)
        for kv in loaded.kvs:
            self._tell(kv)
        async for changes in self.etcd.watch(self.prefix, loaded.revision + 1):
            for change in changes:
                if change.now is not None:
                    self._tell(change.now)

    def _tell(self, kv: KeyValue) -> None:
        number = kv.key.removeprefix(self.prefix)
        known = self._known(kv)
        if known is None or not number.isdecimal():
            return
        shard = int(number)
        self._call(partial(self.learn, shard), known, shard)

    def _call(self, then: Callable[[Known], None], known: Known, shard: int) -> None:
        try:
            then(known)
        except Exception as error:  # noqa: BLE001 - the records of other shards have to be told
            self.log.warning("a shard's record cannot be dealt with", shard=shard, reason=repr(error))
            self.tasks.report(error)

    def _known(self, kv: KeyValue) -> Known | None:
        try:
            return Known(kv.mod_revision, read_record(kv.value))
        except BadRecord as error:
            self.log.warning("a shard's record in etcd is not understood", key=kv.key, reason=str(error))
            return None

    def _key(self, shard: int) -> str:
        return f"{self.prefix}{shard}"
