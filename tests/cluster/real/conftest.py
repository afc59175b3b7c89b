"""A real etcd for each test that asks for one."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.real.broker_nodes import Nodes
from tests.cluster.real.etcd_process import EtcdProcess
from tests.cluster.real.etcd_space import QUOTA_BYTES
from tests.cluster.real.host_cluster import HostCluster
from tests.cluster.real.hosts import why_not
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_settings import EtcdSettings
from warren.server.cluster.local_etcd import PROGRAM, LocalEtcd
from warren.server.log import get_logger


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As with other peers: without Debian's etcd these tests say so, and are left out."""
    if shutil.which(PROGRAM) is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="Debian's etcd-server is not installed"))


@pytest.fixture
def small_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """`local_etcd` is full soon."""
    monkeypatch.setattr("warren.server.cluster.local_etcd.QUOTA_BYTES", QUOTA_BYTES)


@pytest.fixture
async def local_etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    local = LocalEtcd(tmp_path / "etcd", get_logger())
    client = Etcd(EtcdSettings(endpoints=(local.endpoint,)), time.monotonic)
    try:
        await local.start(client)
        yield local
    finally:
        await local.stop()
        await client.close()


@pytest.fixture
async def etcd(local_etcd: LocalEtcd) -> AsyncIterator[Etcd]:
    client = Etcd(EtcdSettings(endpoints=(local_etcd.endpoint,)), time.monotonic)
    yield client
    await client.close()


@pytest.fixture
def etcd_process(tmp_path: Path) -> Iterator[EtcdProcess]:
    with EtcdProcess(tmp_path / "etcd") as process:
        yield process


@pytest.fixture
def nodes(tmp_path: Path, etcd_process: EtcdProcess) -> Iterator[Nodes]:
    """A cluster whose brokers the test starts."""
    with ExitStack() as stack:
        found = Nodes(tmp_path, etcd_process, stack)
        yield found
    for process in found.running.values():
        process.check_log()


@pytest.fixture(scope="module")
def running_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCluster]:
    """A cluster on three hosts, which the tests of a module share."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with HostCluster(tmp_path_factory.mktemp("hosts")) as cluster:
        yield cluster
    cluster.check_logs()


@pytest.fixture
def hosts(running_hosts: HostCluster) -> Iterator[HostCluster]:
    """That cluster, whole. The test is a client on a host of its own, and may do anything to the others."""
    with running_hosts.entered():
        running_hosts.wait_until_whole()
        yield running_hosts
        running_hosts.heal()
