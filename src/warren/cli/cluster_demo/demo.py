"""The demo: one etcd, some brokers around it, their log, and commands to see what a cluster survives.

Whatever ends the demo, nothing of it is left: brokers and etcd are its children, and the kernel ends them
when it is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import string
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from warren.cli import exits
from warren.cli.cluster_demo.child import Child
from warren.cli.cluster_demo.log_view import ETCD, LogView
from warren.cli.cluster_demo.questions import Told, ask, move, queues_at
from warren.cli.cluster_demo.stdin_lines import read_lines
from warren.cli.cluster_demo.welcome import HELP, welcome
from warren.cli.drawing import table
from warren.client.api import Row
from warren.server.cluster.etcd import Etcd
from warren.server.cluster.etcd_settings import EtcdSettings
from warren.server.cluster.local_etcd import PROGRAM, LocalEtcd
from warren.server.config_error import ConfigError
from warren.server.log import get_logger

CLUSTER = "demo"
SHARDS = 12  # few, so that a person can look at all of them
SETTINGS = f"""
cluster_replicate = "durable"
cluster_shards = {SHARDS}
"""
MAJORITY = 2  # of the three copies of a shard
LOOK_SECONDS = 0.05
SETTLE_SECONDS_MAX = 120.0
QUEUES_SHOWN_MAX = 5
COLUMNS = ("node", "state", "AMQP", "HTTP", "leads", "in sync")


class DemoFailed(Exception):
    """The demo cannot start; the text says why."""


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    nodes: int
    directory: Path
    port: int
    http_port: int
    is_temporary: bool  # whether the directory is removed at the end


class Demo:
    def __init__(self, settings: DemoSettings, view: LogView) -> None:
        self.settings = settings
        self.view = view
        directory = settings.directory
        self.local = LocalEtcd(directory / "etcd", get_logger())
        self.etcd = Etcd(EtcdSettings(endpoints=(self.local.endpoint,)), time.monotonic)
        self.children: dict[str, Child] = {}
        for number, name in enumerate(names_of(settings.nodes)):
            child = self.children[name] = Child(name, directory / name, self._arguments(name), view)
            child.port = settings.port and settings.port + number
            child.http_port = settings.http_port and settings.http_port + number
        self.commands: dict[str, Callable[[Child], Awaitable[None]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "start": self._start,
            "pause": self._pause,
            "resume": self._resume,
        }
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()  # from the standard input; None at its end
        self.settling: dict[
            str, asyncio.Task[None]
        ] = {}  # by node: how the cluster takes what was done to it

    def _arguments(self, name: str) -> list[str]:
        config = str(self.settings.directory / "warren.toml")
        return ["--config", config, "--cluster", CLUSTER, "--node", name, "--etcd", self.local.endpoint]

    # --- start and end ---

    async def run(self) -> None:
        """Until `quit`."""
        await self._begin()
        is_terminal = sys.stdin is not None and sys.stdin.isatty()
        end = self.lines.put_nowait if is_terminal else lambda _line: None
        read_lines(0, self.lines.put_nowait, lambda: end(None))
        while (line := await self.lines.get()) is not None:
            if not await self._obey(line.split()):
                return

    async def _begin(self) -> None:
        (self.settings.directory / "warren.toml").write_text(SETTINGS)
        count = len(self.children)
        self.view.tell(f"starting etcd and {count} brokers in {self.settings.directory}")
        self.view.is_brief = True
        await self.local.start(self.etcd)
        children = list(self.children.values())
        for child in children:
            await child.start()
        for child in children:
            if not await child.ready():
                raise DemoFailed(child.said_last or f"broker {child.name} does not start")
            self.view.tell(f"{child.name} runs")
        if await _until(self._is_even) is None:
            raise DemoFailed("the brokers do not become a cluster: the log above says why")
        self.view.is_brief = False
        self.view.show(welcome(children, SHARDS))

    async def _is_even(self) -> bool:
        """Whether all shards are led, each by the node that should. Whoever is the first of all to start gets
        many of them, and would give them back in the next minutes; that is asked for now.
        """
        found = await self._ask()
        tasks = [
            asyncio.to_thread(move, self.children[name].http_url, shard, told.preferred[shard])
            for name, told in found.items()
            for shard in told.led
            if told.preferred[shard] != name
        ]
        await asyncio.gather(*tasks)
        return not tasks and sum(len(told.led) for told in found.values()) == SHARDS

    async def end(self) -> None:
        """Messages of a directory that is removed need no care."""
        for task in self.settling.values():
            task.cancel()
        await asyncio.gather(*self.settling.values(), return_exceptions=True)
        kindly = not self.settings.is_temporary
        if kindly and any(child.is_there for child in self.children.values()):
            self.view.tell("stopping all")
        await asyncio.gather(*(child.end(kindly=kindly) for child in self.children.values()))
        await self.local.stop()
        await self.etcd.close()

    # --- commands ---

    async def _obey(self, words: list[str]) -> bool:
        """Do what a line asks for. False if that is the end."""
        verb, *names = words or [""]
        if verb in {"quit", "exit"}:
            return False
        if verb == "status":
            await self._status()
        elif verb == "help":
            self.view.show(HELP)
        elif verb in self.commands:
            await self._for_each(verb, names)
        elif verb:
            self.view.tell(f"there is no command '{verb}': type 'help'")
        return True

    async def _for_each(self, verb: str, names: list[str]) -> None:
        unknown = [name for name in names if name not in self.children]
        if unknown or not names:
            which = f"there is no node '{unknown[0]}'." if unknown else "which node?"
            self.view.tell(f"{which} Say for example: {verb} {next(iter(self.children))}")
            return
        for name in names:
            await self.commands[verb](self.children[name])

    async def _kill(self, child: Child) -> None:
        if not child.is_there:
            self.view.tell(f"{child.name} is not running")
            return
        queues = await self._queues_of(child)
        child.kill()
        self.view.tell(f"{child.name} is killed, as by kill -9")
        self._settle(child, queues)

    async def _stop(self, child: Child) -> None:
        if not child.is_there:
            self.view.tell(f"{child.name} is not running")
            return
        queues = await self._queues_of(child)
        self.view.tell(f"{child.name} is asked to stop: it hands over its shards first")
        child.stop()
        self._settle(child, queues)

    async def _start(self, child: Child) -> None:
        if child.is_there and not child.is_asked_to_end:
            self.view.tell(f"{child.name} is {child.state}")
            return
        await child.is_over.wait()
        self.view.tell(f"{child.name} starts")
        await child.start()
        self._settle(child, [])

    async def _pause(self, child: Child) -> None:
        if child.state != "running":
            self.view.tell(f"{child.name} is {child.state}")
            return
        queues = await self._queues_of(child)
        child.pause()
        self.view.tell(f"{child.name} is paused, as by SIGSTOP: the others lose patience in some seconds")
        self._settle(child, queues)

    async def _resume(self, child: Child) -> None:
        if not child.is_paused:
            self.view.tell(f"{child.name} is not paused")
            return
        child.resume()
        self.view.tell(f"{child.name} goes on, and finds that others lead now")
        self._settle(child, [])

    # --- how the cluster takes it ---

    def _settle(self, child: Child, queues: list[Row]) -> None:
        """Tell in the background what becomes of what was done to a broker, which led these queues."""
        if child.name in self.settling:
            self.settling[child.name].cancel()
        is_away = child.is_asked_to_end or child.is_paused
        work = self._tell_takeover(child, queues) if is_away else self._tell_return(child)
        self.settling[child.name] = asyncio.create_task(work)

    async def _tell_takeover(self, child: Child, queues: list[Row]) -> None:
        others = [each for each in self.children.values() if each is not child]
        if sum(each.is_there and not each.is_paused for each in others) < MAJORITY:
            self.view.tell("too few brokers are left: all waits for another one, and nothing is lost")
            return

        async def is_led() -> bool:
            return len(await self._led(but=child)) == SHARDS

        seconds = await _until(is_led)
        if seconds is None:
            self.view.tell("not all shards are led: 'status' shows which")
            return
        self.view.tell(f"all {SHARDS} shards are led by others, {seconds:.1f} s later", style="bold green")
        await self._tell_where(queues)

    async def _tell_return(self, child: Child) -> None:
        if not await child.ready():
            return
        if await _until(lambda: self._is_in_sync(child.name)) is None:
            self.view.tell(f"{child.name} does not have everything yet: 'status' shows how it goes")
        else:
            self.view.tell(f"{child.name} is in sync: it has all that is confirmed", style="bold green")

    async def _tell_where(self, queues: list[Row]) -> None:
        """Where the queues are now that a broker led."""
        known = {(queue["vhost"], queue["name"]): queue for queue in await self._queues()}
        for queue in queues[:QUEUES_SHOWN_MAX]:
            now = known.get((queue["vhost"], queue["name"]))
            if now is not None and now["leader"] in self.children:
                url = self.children[now["leader"]].http_url
                count = f"{now['messages']} message{'' if now['messages'] == 1 else 's'}"
                self.view.tell(f"queue {queue['name']} is on {now['leader']} now, with {count}: {url}")

    # --- questions ---

    async def _ask(self, but: Child | None = None) -> dict[str, Told]:
        asked = [child for child in self.children.values() if child.answers and child is not but]
        answers = await asyncio.gather(*(asyncio.to_thread(ask, child.http_url) for child in asked))
        return {child.name: told for child, told in zip(asked, answers, strict=True) if told is not None}

    async def _led(self, but: Child | None = None) -> set[int]:
        """The shards that a broker says it leads."""
        return {shard for told in (await self._ask(but)).values() for shard in told.led}

    async def _is_in_sync(self, name: str) -> bool:
        """Whether a broker has everything of what it keeps, as all that answer know it."""
        told = (await self._ask()).values()
        return bool(told) and all(0 < each.kept[name] == each.in_sync[name] for each in told)

    async def _queues(self) -> list[Row]:
        """All queues that are replicated, as their leaders tell them."""
        asked = [child for child in self.children.values() if child.answers]
        answers = await asyncio.gather(*(asyncio.to_thread(queues_at, child.http_url) for child in asked))
        return [
            queue
            for child, queues in zip(asked, answers, strict=True)
            for queue in queues
            if queue["leader"] == child.name
        ]

    async def _queues_of(self, child: Child) -> list[Row]:
        return [queue for queue in await self._queues() if queue["leader"] == child.name]

    async def _status(self) -> None:
        told = await self._ask()
        rows = []
        for name, child in self.children.items():
            its = told.get(name)
            kept, in_sync = max(
                ((each.kept[name], each.in_sync[name]) for each in told.values()), default=(0, 0)
            )
            ports = (f"127.0.0.1:{child.port}", child.http_url)
            rows.append((name, child.state, *ports, str(len(its.led) if its else 0), f"{in_sync} of {kept}"))
        self.view.show(table(rows, COLUMNS))
        led = {shard for each in told.values() for shard in each.led}
        missing = [str(shard) for shard in range(SHARDS) if shard not in led]
        if missing:
            self.view.show(Text(f"shards that nobody leads now: {' '.join(missing)}", "yellow"))


async def _until(is_so: Callable[[], Awaitable[bool]]) -> float | None:
    """Ask again and again. How many seconds it took; None if it does not become so."""
    began = time.monotonic()
    while not await is_so():
        if time.monotonic() - began > SETTLE_SECONDS_MAX:
            return None
        await asyncio.sleep(LOOK_SECONDS)
    return time.monotonic() - began


def names_of(count: int) -> list[str]:
    return list(string.ascii_lowercase[:count])


class EtcdLog(logging.Handler):
    """What there is to say of etcd, in the same log."""

    def __init__(self, view: LogView) -> None:
        super().__init__()
        self.view = view

    def emit(self, record: logging.LogRecord) -> None:
        says = getattr(record, "says", "")
        self.view.log_text(ETCD, f"{record.getMessage()} {says}".rstrip())


def run_demo(*, nodes: int, directory: str | None, port: int, http_port: int) -> int:
    """Run it until the user or a signal ends it; return the exit code."""
    if shutil.which(PROGRAM) is None:
        return _fail("etcd is not installed: apt-get install etcd-server")
    path = Path(directory or tempfile.mkdtemp(prefix="warren-cluster-")).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        settings = DemoSettings(
            nodes=nodes, directory=path, port=port, http_port=http_port, is_temporary=directory is None
        )
        asyncio.run(_run(settings))
    except (DemoFailed, ConfigError, OSError) as error:
        return _fail(str(error))
    finally:
        if directory is None:
            shutil.rmtree(path, ignore_errors=True)
    return 0


async def _run(settings: DemoSettings) -> None:
    loop = asyncio.get_running_loop()
    work: asyncio.Task[None] | None = None

    def leave() -> None:
        if work is not None:
            work.cancel()

    def is_lost() -> None:
        """Nobody reads the log any more: throw away what Python still has of it, and leave."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        leave()

    view = LogView(sys.stdout, names_of(settings.nodes), on_lost=is_lost)
    logger = logging.getLogger("warren")
    logger.handlers[:] = [EtcdLog(view)]
    logger.propagate = False
    demo = Demo(settings, view)
    work = asyncio.create_task(demo.run())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave)
    try:
        await work
    except asyncio.CancelledError:
        pass  # a signal, or nobody reads the log any more
    finally:
        await demo.end()


def _fail(text: str) -> int:
    sys.stderr.write(f"warren cluster demo: {text.removeprefix('warren serve: ')}\n")
    return exits.REFUSED
