"""Our client of etcd against Debian's etcd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.cluster.real.etcd_space import fill, make_space
from warren.cluster.transactions import (
    ABSENT,
    Answer,
    Changed,
    Compare,
    CompareCreated,
    Delete,
    KeyValue,
    Outcome,
    Put,
    Transaction,
)
from warren.server.cluster import etcd as etcd_module
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_errors import Busy, Compacted, Failed, Refused, Unreachable, error_of
from warren.server.cluster.etcd_settings import EtcdSettings
from warren.server.cluster.local_etcd import LocalEtcd, free_port
from warren.server.config_error import ConfigError
from warren.server.log import get_logger

WAIT_SECONDS = 60.0


def create(key: str, value: bytes = b"x") -> Transaction:
    return Transaction((Compare(key, ABSENT),), (Put(key, value),), (key,))


async def take(watch: AsyncGenerator[list[Changed]], count: int) -> list[Changed]:
    """So many changes, and perhaps more, that a watch tells."""
    found: list[Changed] = []
    while len(found) < count:
        found += await asyncio.wait_for(anext(watch), WAIT_SECONDS)
    return found


async def test_a_compare_of_an_absent_key_succeeds_once(etcd: Etcd) -> None:
    first = await etcd.txn(create("k", b"\x00\xff"))
    second = await etcd.txn(create("k"))
    assert first.outcome is Outcome.SUCCEEDED
    assert second.outcome is Outcome.FAILED
    assert second.read == (KeyValue("k", b"\x00\xff", first.revision, first.revision, 1),)


async def test_compares_of_the_change_and_of_the_making_of_a_key(etcd: Etcd) -> None:
    made = (await etcd.txn(create("k"))).revision
    changed = await etcd.txn(Transaction((Compare("k", made),), (Put("k", b"y"),)))
    assert changed.outcome is Outcome.SUCCEEDED
    stale = await etcd.txn(Transaction((Compare("k", made),), (Delete("k"),)))
    assert stale.outcome is Outcome.FAILED
    by_making = await etcd.txn(Transaction((CompareCreated("k", made),), (Delete("k"),)))
    assert by_making.outcome is Outcome.SUCCEEDED
    assert await etcd.get("k") is None


async def test_several_keys_are_read_by_one_request(etcd: Etcd) -> None:
    for key in ("a", "b"):
        await etcd.txn(create(key))
    a, nothing, b, again = await etcd.get_all(["a", "none", "b", "a"])
    assert (a, b, again) == (await etcd.get("a"), await etcd.get("b"), a)
    assert nothing is None


async def test_load_reads_pages_at_one_revision(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_module, "PAGE_KEYS", 3)
    for number in range(10):
        await etcd.txn(create(f"p/{number}"))
    await etcd.txn(create("q"))
    loaded = await etcd.load("p/")
    assert [kv.key for kv in loaded.kvs] == [f"p/{number}" for number in range(10)]
    assert loaded.revision == (await etcd.status()).revision


async def test_a_watch_tells_changes_in_order_and_deletions(etcd: Etcd) -> None:
    made = (await etcd.txn(create("p/a"))).revision
    await etcd.txn(create("other"))
    await etcd.txn(Transaction((), (Delete("p/a"), Put("p/b", b"1"))))
    watch = etcd.watch("p/", made)
    found = await take(watch, 3)
    await watch.aclose()
    assert [(each.key, each.now is None) for each in found] == [("p/a", False), ("p/a", True), ("p/b", False)]
    assert found[1].revision == found[2].revision


async def test_a_watch_from_before_a_compaction_says_so(etcd: Etcd) -> None:
    await etcd.txn(create("p/a"))
    revision = (await etcd.txn(create("p/b"))).revision
    await etcd.compact(revision)
    with pytest.raises(Compacted):
        await anext(etcd.watch("p/", 1))


async def test_a_watch_goes_on_when_etcd_was_restarted(etcd: Etcd, local_etcd: LocalEtcd) -> None:
    revision = (await etcd.txn(create("p/a"))).revision
    watch = etcd.watch("p/", revision)
    assert [each.key for each in await take(watch, 1)] == ["p/a"]
    assert local_etcd.process is not None
    local_etcd.process.kill()
    async with asyncio.timeout(WAIT_SECONDS):
        answer = await etcd.txn(create("p/b"))
        while answer.outcome not in {Outcome.SUCCEEDED, Outcome.FAILED}:
            answer = await etcd.txn(create("p/b"))
    assert [each.key for each in await take(watch, 1)] == ["p/b"]
    await watch.aclose()
    assert local_etcd.restarts == 1


async def test_an_endpoint_that_refuses_is_passed_over(etcd: Etcd, local_etcd: LocalEtcd) -> None:
    both = EtcdSettings(endpoints=(f"http://127.0.0.1:{free_port()}", local_etcd.endpoint))
    client = Etcd(both, time.monotonic)
    answer = await client.txn(create("k"))
    await client.close()
    assert answer.outcome is Outcome.SUCCEEDED
    assert await etcd.get("k") is not None


async def test_what_could_not_be_sent_is_told_apart_from_what_was_not_answered(
    etcd: Etcd, local_etcd: LocalEtcd
) -> None:
    nowhere = Etcd(EtcdSettings(endpoints=(f"http://127.0.0.1:{free_port()}",)), time.monotonic)
    answer = await nowhere.txn(create("k"))
    assert answer.outcome is Outcome.NOT_SENT
    assert "cannot be reached" in answer.reason
    with pytest.raises(Unreachable):
        await nowhere.get("k")
    await nowhere.close()
    hasty = Etcd(EtcdSettings(endpoints=(local_etcd.endpoint,)), time.monotonic, answer_seconds_max=0.2)
    assert local_etcd.process is not None
    os.kill(local_etcd.process.pid, signal.SIGSTOP)
    try:
        answer = await hasty.txn(create("k"))
    finally:
        os.kill(local_etcd.process.pid, signal.SIGCONT)
    await hasty.close()
    assert answer.outcome is Outcome.UNKNOWN
    await etcd.txn(Transaction((), (Put("after", b""),)))


@pytest.mark.usefixtures("small_quota")
async def test_an_etcd_that_has_just_become_full_may_have_written_what_it_refuses(etcd: Etcd) -> None:
    """Debian's says that it has no space of what it writes in the moment in which its quota is reached. It
    looks at its size some times in a second, so that it takes more than that before.
    """
    refused: list[Answer] = []
    for number in range(10):
        puts = (create(f"k{number}-{each}", bytes(60_000)) for each in range(150))
        answers = await asyncio.gather(*map(etcd.txn, puts))
        refused += [answer for answer in answers if answer.outcome is not Outcome.SUCCEEDED]
        if refused:
            break
    assert refused
    assert {answer.outcome for answer in refused} == {Outcome.UNKNOWN}
    assert any("disarm its alarm" in answer.reason for answer in refused)


@pytest.mark.usefixtures("small_quota")
async def test_who_can_begin_anew_is_told_that_etcd_has_no_space_until_it_has(etcd: Etcd) -> None:
    await fill(etcd)
    with pytest.raises(Failed, match="disarm its alarm"):
        await etcd.write(create("k"))
    await make_space(etcd)
    assert (await etcd.write(create("k"))).outcome is Outcome.SUCCEEDED


def test_an_etcd_that_is_busy_refuses_for_now() -> None:
    busy, never = error_of("etcdserver: too many requests"), error_of("etcdserver: permission denied")
    assert busy.was_refused
    assert isinstance(busy, Busy)
    assert never.was_refused
    assert isinstance(never, Refused)


async def test_user_and_password_are_used_and_the_token_is_renewed(etcd: Etcd, local_etcd: LocalEtcd) -> None:
    for path, wanted in (
        ("auth/user/add", {"name": "root", "password": "secret"}),
        ("auth/role/add", {"name": "root"}),
        ("auth/user/grant", {"user": "root", "role": "root"}),
        ("auth/enable", {}),
    ):
        await etcd._ask(path, wanted)
    with pytest.raises(Refused, match="etcd_user"):
        await etcd.get("k")
    wrong = EtcdSettings(endpoints=(local_etcd.endpoint,), user="root", password="wrong")
    right = EtcdSettings(endpoints=(local_etcd.endpoint,), user="root", password="secret")
    client = Etcd(wrong, time.monotonic)
    answer = await client.txn(create("k"))
    await client.close()
    assert answer.outcome is Outcome.NOT_SENT
    assert "refuses the user or password" in answer.reason
    client = Etcd(right, time.monotonic)
    assert (await client.txn(create("k"))).outcome is Outcome.SUCCEEDED
    client.token = "invalid"  # noqa: S105 - as if etcd had forgotten it
    assert await client.get("k") is not None
    await client.close()


async def test_a_missing_etcd_is_named_with_what_to_install(
    tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt install etcd-server"):
        await LocalEtcd(tmp_path / "e", get_logger()).start(etcd)


async def test_a_local_etcd_ends_when_it_is_stopped(tmp_path: Path) -> None:
    local = LocalEtcd(tmp_path / "etcd", get_logger())
    client = Etcd(EtcdSettings(endpoints=(local.endpoint,)), time.monotonic)
    await local.start(client)
    assert local.process is not None
    pid = local.process.pid
    await local.stop()
    await client.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        pytest.fail("etcd is still there")
