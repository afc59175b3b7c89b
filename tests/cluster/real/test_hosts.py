"""The hosts themselves: namespaces, cuts between them, and that nothing of them is left."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.real.broker_nodes import eventually
from tests.cluster.real.hosts import Host, Network, small_disk, why_not

pytestmark = pytest.mark.slow

CONNECT_SECONDS = 0.5  # until it counts as dropped
PORT = 7000


@pytest.fixture
def network() -> Iterator[Network]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Network("a", "b") as network:
        yield network


def reaches(source: Host, target: Host, port: int = PORT) -> bool:
    """Whether a connection can be made from one host to another."""
    with target.space.entered():
        listener = socket.create_server((target.address, port))
    with listener, source.space.entered():
        try:
            socket.create_connection((target.address, port), CONNECT_SECONDS).close()
        except TimeoutError:
            return False
    return True


def test_hosts_reach_each_other_but_for_what_is_cut(network: Network) -> None:
    a, b = network.hosts["a"], network.hosts["b"]
    eventually(lambda: reaches(a, b))
    eventually(lambda: reaches(network.clients, a))
    cut = a.cut_from(b)
    assert not reaches(a, b)
    assert not reaches(b, a)
    eventually(lambda: reaches(network.clients, a))
    cut.heal()
    eventually(lambda: reaches(a, b))


def test_one_port_is_cut(network: Network) -> None:
    a, b = network.hosts["a"], network.hosts["b"]
    a.cut_port(PORT, b)
    assert not reaches(a, b)
    assert not reaches(b, a)
    eventually(lambda: reaches(a, b, PORT + 1))
    a.heal()
    eventually(lambda: reaches(a, b))
    a.cut_from_port(PORT)
    assert not reaches(a, a)
    assert not reaches(a, b)
    eventually(lambda: reaches(b, a))


def test_one_way_is_cut(network: Network) -> None:
    a, b = network.hosts["a"], network.hosts["b"]
    a.cut_to(b)
    with a.space.entered():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.bind((a.address, PORT))
    with b.space.entered():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind((b.address, PORT))
    with sender, receiver:
        receiver.settimeout(CONNECT_SECONDS)
        with pytest.raises(PermissionError):  # its own firewall says so
            sender.sendto(b"dropped", (b.address, PORT))
        receiver.sendto(b"heard", (a.address, PORT))
        sender.settimeout(10)
        assert sender.recv(100) == b"heard"


def test_a_host_without_its_plug_hears_nothing(network: Network) -> None:
    a, b = network.hosts["a"], network.hosts["b"]
    b.link(up=False)
    assert not reaches(a, b)
    b.link(up=True)
    eventually(lambda: reaches(a, b))


def test_nothing_of_the_hosts_is_left() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    before = held_namespaces()
    with Network("a"):
        assert len(held_namespaces()) == len(before) + 3  # the bridge, the host, and that of clients
    assert held_namespaces() == before


def held_namespaces() -> set[str]:
    """The network namespaces that this process keeps."""
    held = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor that lists the others
            held.add(str(path.readlink()))
    return {each for each in held if each.startswith("net:")}


def test_a_small_disk_gets_full(tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    path = tmp_path / "disk"
    with small_disk(path, 1 << 20):
        with pytest.raises(OSError, match="No space left"):
            (path / "file").write_bytes(bytes(2 << 20))
        (path / "file").unlink()
    assert list(path.iterdir()) == []
