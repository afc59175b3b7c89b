"""Our client and three members of etcd, of which one after the other dies; and etcd with TLS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.real.etcd_process import EtcdProcess, members_of
from tests.support.certificates import Certificates
from warren.cluster.transactions import ABSENT, Compare, Outcome, Put, Transaction
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_errors import Unreachable
from warren.server.cluster.etcd_settings import EtcdSettings

WAIT_SECONDS = 100.0

pytestmark = pytest.mark.slow


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[EtcdProcess]]:
    with ExitStack() as stack:
        members = members_of(tmp_path, 3)
        for member in members:
            stack.callback(member.__exit__)
            member.spawn()
        for member in members:
            member.wait_until_it_answers()
        yield members


@pytest.fixture
async def client(members: list[EtcdProcess]) -> AsyncIterator[Etcd]:
    settings = EtcdSettings(endpoints=tuple(member.endpoint for member in members))
    client = Etcd(settings, time.monotonic, answer_seconds_max=2.0)
    yield client
    await client.close()


async def create(client: Etcd, key: str) -> None:
    """Make a key, as a caller must who does not know the outcome: read, and try again."""
    wanted = Transaction((Compare(key, ABSENT),), (Put(key, b"x"),), (key,))
    async with asyncio.timeout(WAIT_SECONDS):
        while (await client.txn(wanted)).outcome not in {Outcome.SUCCEEDED, Outcome.FAILED}:
            pass


async def test_changes_go_on_when_each_member_dies_in_turn(client: Etcd, members: list[EtcdProcess]) -> None:
    watch = client.watch("k/", 1)
    told: list[str] = []
    for number, member in enumerate(members):
        await create(client, f"k/{number}")
        member.kill()
        await create(client, f"k/{number}/after")
        async with asyncio.timeout(WAIT_SECONDS):
            while len(told) < 2 * number + 2:
                told += [each.key for each in await anext(watch)]
        member.spawn()
        await asyncio.to_thread(member.wait_until_it_answers)
    await watch.aclose()
    assert told == [f"k/{number}{more}" for number in range(3) for more in ("", "/after")]


async def test_without_a_majority_nothing_is_said_to_be_done(
    client: Etcd, members: list[EtcdProcess]
) -> None:
    await create(client, "k")
    for member in members[1:]:
        member.kill()
    answer = await client.txn(Transaction((), (Put("k", b"y"),)))
    assert answer.outcome in {Outcome.UNKNOWN, Outcome.NOT_SENT}
    assert answer.reason


async def test_tls_is_verified(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    flags = (
        f"--cert-file={certificates.server}",
        f"--key-file={certificates.server}",
        f"--trusted-ca-file={certificates.ca}",
        "--client-cert-auth",
    )
    with EtcdProcess(tmp_path / "etcd", *flags, scheme="https") as etcd:
        right = EtcdSettings(
            endpoints=(etcd.endpoint,),
            ca=str(certificates.ca),
            cert=str(certificates.client("warren")),
        )
        client = Etcd(right, time.monotonic)
        async with asyncio.timeout(WAIT_SECONDS):
            await create(client, "k")
            assert await client.get("k") is not None
        await client.close()
        stranger = Etcd(EtcdSettings(endpoints=(etcd.endpoint,)), time.monotonic)
        with pytest.raises(Unreachable, match="certificate"):
            await stranger.get("k")
        await stranger.close()
