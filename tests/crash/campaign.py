"""Rounds of load on one data directory, each ended by the broker's death, and a look at what was kept."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import Coroutine, Iterator
from enum import Enum
from pathlib import Path

import pytest

from tests.crash.consumers import Consumer
from tests.crash.definitions import Definitions
from tests.crash.gardener import Gardener
from tests.crash.inspector import Inspector
from tests.crash.ledger import Ledger
from tests.crash.link import connected
from tests.crash.message import MessageMaker
from tests.crash.publishers import TransactionClient, publish_with_confirms
from tests.crash.stage import Stage
from tests.crash.topology import CONSUMED, declare_all
from tests.support.process import BrokerProcess

PUBLISHERS = 3
CONFIRMS_MAX = 2_500
KILL_DELAY_SECONDS_MAX = 0.05
ROUND_SECONDS_MAX = 60
START_SHARE_MIN, START_SHARE_MAX = 0.4, 1.1


class End(Enum):
    """How a round ends."""

    KILL = "SIGKILL"
    TERMINATE = "SIGTERM"


class Campaign:
    """The clients' knowledge lasts from round to round, as the data directory does."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.data_dir = data_dir
        self.seed = seed
        self.chance = random.Random(seed)
        self.ledger = Ledger()
        self.definitions = Definitions()
        self.inspector = Inspector(self.ledger, self.definitions, self.chance)
        self.makers = [MessageMaker(f"publisher{n}") for n in range(PUBLISHERS)]
        self.transaction_maker = MessageMaker("transactions")
        self.garden_maker = MessageMaker("gardener")
        self.rounds = 0
        self.start_seconds = 0.0

    def start(self) -> BrokerProcess:
        return BrokerProcess(self.data_dir)

    def run_round(self, end: End) -> None:
        """A look at what the last round left, then load until the end."""
        launched = time.monotonic()
        with self.start() as process:
            self.start_seconds = time.monotonic() - launched
            asyncio.run(self.play(process, end))
        process.check_log()
        self.rounds += 1

    def finish(self) -> None:
        """A look at all that was kept."""
        with self.start() as process:
            asyncio.run(self.inspector.look(process.address, at_all=True))
        process.check_log()
        self.check()

    def interrupt_start(self) -> None:
        """Kills a broker before it is ready or a moment after, judging by how long the last one took. It must
        not end by itself.
        """
        process = self.start()
        process.launch()
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.process.wait(
                    self.start_seconds * self.chance.uniform(START_SHARE_MIN, START_SHARE_MAX)
                )
        finally:
            process.kill()
        process.check_log()

    async def play(self, process: BrokerProcess, end: End) -> None:
        if self.rounds == 0:
            async with connected(process.address) as link:
                await declare_all(link, self.ledger, self.definitions)
        else:
            await self.inspector.look(process.address)
            self.check()
        stage = Stage(
            process.address,
            self.ledger,
            self.definitions,
            seed=f"{self.seed}/{self.rounds}",
            confirms=self.chance.randint(1, CONFIRMS_MAX),
        )
        async with asyncio.timeout(ROUND_SECONDS_MAX), asyncio.TaskGroup() as clients:
            for part in self.parts(stage):
                clients.create_task(stage.play(part))
            await stage.due.wait()
            await asyncio.sleep(self.chance.uniform(0, KILL_DELAY_SECONDS_MAX))
            stage.ending = True
            if end is End.KILL:
                process.kill()
            else:
                process.terminate()

    def parts(self, stage: Stage) -> Iterator[Coroutine[None, None, None]]:
        """What the clients of a round do."""
        for maker in self.makers:
            yield publish_with_confirms(stage, maker)
        yield TransactionClient(stage, self.transaction_maker).run()
        yield Gardener(stage, self.garden_maker).run()
        for queue in CONSUMED:
            for number in range(self.chance.choice((0, 1, 1, 2))):
                yield Consumer(stage, f"consumer/{queue}/{number}", queue).run()

    def check(self) -> None:
        verdict = self.ledger.verdict()
        assert not verdict, f"after {self.rounds} rounds:\n{verdict}"
