"""Hosts of a cluster on one machine: network namespaces on a bridge, with cuts between them.

A namespace is held by a descriptor of this process and has no name. So it is gone as soon as this process
and the ones it started in there are, however they end, and the machine's own network has none of it: the
bridge lies in a namespace as well.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Self

CLONE_NEWNET = 0x40000000
TOOLS = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux", "mount": "mount"}
NETWORK = "10.77.0"
LIBC = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Why this machine cannot have such hosts; empty if it can."""
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        return f"Debian's {' and '.join(missing)} is not installed"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    try:
        os.close(_new_namespace())
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _this_namespace() -> int:
    """A descriptor of the network namespace of this thread."""
    return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _new_namespace() -> int:
    """A descriptor that keeps a new network namespace."""
    before = _this_namespace()
    try:
        _check(LIBC.unshare(CLONE_NEWNET))
        try:
            return _this_namespace()
        finally:
            _check(LIBC.setns(before, CLONE_NEWNET))
    finally:
        os.close(before)


class Namespace:
    """A network namespace, which lasts until it is closed and nothing runs in it any more."""

    def __init__(self) -> None:
        self.descriptor = _new_namespace()
        self.path = f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def close(self) -> None:
        os.close(self.descriptor)

    def command(self, *command: str) -> list[str]:
        """The command that runs another one in here. It becomes that one, so its process id is the same."""
        return ["nsenter", f"--net={self.path}", "--", *command]

    def run(self, *command: str, given: str | None = None) -> None:
        done = subprocess.run(
            self.command(*command), input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets that this thread makes meanwhile are in here, and so are threads and processes that it
        starts.
        """
        before = _this_namespace()
        try:
            _check(LIBC.setns(self.descriptor, CLONE_NEWNET))
            try:
                yield
            finally:
                _check(LIBC.setns(before, CLONE_NEWNET))
        finally:
            os.close(before)


class Cut:
    """Packets that a host drops, until it is healed."""

    def __init__(self, host: Host, table: str) -> None:
        self.host = host
        self.table = table
        self.is_healed = False

    def heal(self) -> None:
        if not self.is_healed:
            self.is_healed = True
            self.host.space.run("nft", "delete", "table", "inet", self.table)


class Host:
    """A machine on the network, without anything that runs on it."""

    numbers = count()

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.space = Namespace()
        self.cuts: list[Cut] = []

    def link(self, *, up: bool) -> None:
        """Pull its plug, or put it back in."""
        self.space.run("ip", "link", "set", "eth0", "up" if up else "down")

    def drop(self, *, into: Sequence[str] = (), out: Sequence[str] = ()) -> Cut:
        """Drop packets that match one of these conditions of nft: those that come in, or that go out."""
        table = f"cut{next(self.numbers)}"
        chains = [
            f"chain {hook} {{ type filter hook {hook} priority 0; "
            + " ".join(f"{condition} drop;" for condition in conditions)
            + " }"
            for hook, conditions in (("input", into), ("output", out))
        ]
        self.space.run("nft", "-f", "-", given=f"table inet {table} {{ {'; '.join(chains)} ; }}\n")
        cut = Cut(self, table)
        self.cuts.append(cut)
        return cut

    def cut_from(self, *others: Host) -> Cut:
        """Nothing goes between this host and these."""
        return self.drop(into=[f"ip saddr {_any(others)}"], out=[f"ip daddr {_any(others)}"])

    def cut_to(self, *others: Host) -> Cut:
        """Nothing of what this host sends gets to these; it hears what they send."""
        return self.drop(out=[f"ip daddr {_any(others)}"])

    def cut_port(self, port: int, *others: Host) -> Cut:
        """Between this host and these, nobody can use what listens on this port."""
        return self.drop(
            into=[f"ip saddr {_any(others)} tcp {side} {port}" for side in ("sport", "dport")],
            out=[f"ip daddr {_any(others)} tcp {side} {port}" for side in ("sport", "dport")],
        )

    def cut_from_port(self, port: int) -> Cut:
        """Nothing on this host can use what listens on this port, wherever that is. A member of etcd cannot
        either, which calls itself to answer in JSON.
        """
        return self.drop(into=[f"tcp sport {port}"], out=[f"tcp dport {port}"])

    def heal(self) -> None:
        """All of its cuts."""
        for cut in self.cuts:
            cut.heal()
        self.cuts.clear()


def _any(hosts: Sequence[Host]) -> str:
    return f"{{ {', '.join(host.address for host in hosts)} }}"


class Network:
    """Hosts on one bridge, and one for clients. All of it is gone on leaving."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.bridge = Namespace()
            stack.callback(self.bridge.close)
            self.bridge.run("ip", "link", "add", "bridge", "type", "bridge")
            self.bridge.run("ip", "link", "set", "bridge", "up")
            for number, name in enumerate(self.names, 1):
                self.hosts[name] = host = self._host(name, number)
                stack.callback(host.space.close)
            self.clients = self._host("clients", 100)
            stack.callback(self.clients.space.close)
            self.stack = stack.pop_all()
        return self

    def _host(self, name: str, number: int) -> Host:
        host = Host(name, f"{NETWORK}.{number}")
        port = f"port{number}"
        peer = ("peer", "name", "eth0", "netns", host.space.path)
        self.bridge.run("ip", "link", "add", port, "type", "veth", *peer)
        self.bridge.run("ip", "link", "set", port, "master", "bridge", "up")
        host.space.run("ip", "link", "set", "lo", "up")
        host.space.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.link(up=True)
        return host

    def __exit__(self, *exception: object) -> None:
        self.stack.close()


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[None]:
    """A directory on a file system of its own, which is full with this much."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
