"""An etcd that has no space any more, and gets some again."""

from __future__ import annotations

from warren.cluster.transactions import Outcome, Put, Transaction
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_text import encoded, prefix_end

QUOTA_BYTES = 3_000_000
FILLING = "filling/"
VALUE_BYTES = 60_000
PUTS_MAX = 10 * QUOTA_BYTES // VALUE_BYTES


async def fill(etcd: Etcd) -> None:
    """Put keys until etcd, whose quota is `QUOTA_BYTES`, says that it has no space."""
    for number in range(PUTS_MAX):
        answer = await etcd.txn(Transaction((), (Put(f"{FILLING}{number}", bytes(VALUE_BYTES)),)))
        if answer.outcome is not Outcome.SUCCEEDED:
            return
    raise AssertionError("etcd takes more than its quota")


async def make_space(etcd: Etcd) -> None:
    """What an operator does: delete, compact, defragment, disarm the alarm."""
    wanted = {"key": encoded(FILLING), "range_end": encoded(prefix_end(FILLING))}
    await etcd._ask("kv/deleterange", wanted)
    await etcd.compact((await etcd.status()).revision)
    await etcd._ask("maintenance/defragment", {})
    for alarm in (await etcd._ask("maintenance/alarm", {"action": "GET"}))["alarms"]:
        await etcd._ask("maintenance/alarm", {**alarm, "action": "DEACTIVATE"})
