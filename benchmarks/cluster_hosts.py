"""Where the nodes of a measured cluster run: on loopback, or on hosts of their own.

A host is a network namespace that hangs on a bridge by a cable, so that it can be cut off. The benchmark's
own process moves into a namespace of its own, which has the bridge. Namespaces have no names: each goes with
the last process in it, and the bridge with the benchmark. That takes root, and the tools `ip`, `unshare` and
`nsenter`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("ip", "unshare", "nsenter")
CLONE_NEWNET = 0x40000000
NETWORK = "10.201.0"
HUB = f"{NETWORK}.1"
BRIDGE = "hub"
LOOPBACK = "127.0.0.1"
START_SECONDS_MAX = 10
LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Host:
    """A machine, as far as its network tells."""

    address: str
    enter: tuple[str, ...] = ()  # the command that runs another one there
    cable: str = ""  # its link at the bridge; empty: there is none that could be cut

    def cut(self) -> None:
        _ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self.cable, "up")


def can_make_hosts() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, TOOLS))


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts. Whoever enters this is on the bridge that they hang on, and stays there."""
    _move_to_own_namespace()
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{HUB}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_host(number)) for number in range(count)]
    _ip("link", "delete", BRIDGE)


def _move_to_own_namespace() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace: {os.strerror(number)}")


@contextlib.contextmanager
def _host(number: int) -> Iterator[Host]:
    address, cable = f"{NETWORK}.{number + 2}", f"cable{number}"
    holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)  # until we are gone
    try:
        _wait_for_namespace(holder.pid)
        enter = ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _ip("link", "set", cable, "master", BRIDGE, "up")
        _ip("link", "set", "lo", "up", enter=enter)
        _ip("address", "add", f"{address}/24", "dev", "eth0", enter=enter)
        _ip("link", "set", "eth0", "up", enter=enter)
        yield Host(address, enter, cable)
    finally:
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait()


def _wait_for_namespace(pid: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
        assert time.monotonic() < deadline, "unshare makes no namespace"
        time.sleep(LOOK_SECONDS)


def _ip(*words: str, enter: tuple[str, ...] = ()) -> None:
    subprocess.run([*enter, "ip", *words], check=True, capture_output=True)
