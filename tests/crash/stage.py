"""What the clients of one round share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine

from tests.crash.definitions import Definitions
from tests.crash.ledger import Ledger
from tests.crash.message import Message
from tests.support.errors import EndedError
from tests.support.process import Address


class Stage:
    """The round is to end, says `due`, once so many messages are confirmed: a kill hits a broker at work."""

    def __init__(
        self, address: Address, ledger: Ledger, definitions: Definitions, *, seed: str, confirms: int
    ) -> None:
        self.address = address
        self.ledger = ledger
        self.definitions = definitions
        self.seed = seed
        self.confirms_left = confirms
        self.due = asyncio.Event()
        self.ending = False

    def chance(self, name: str) -> random.Random:
        """A client's own chance, so that what it decides does not depend on how the clients take turns."""
        return random.Random(f"{self.seed}/{name}")

    def confirm(self, message: Message) -> None:
        self.ledger.confirm(message)
        self.confirms_left -= 1
        if self.confirms_left <= 0:
            self.due.set()

    async def play(self, part: Coroutine[None, None, None]) -> None:
        """A client's part lasts until the broker ends, which it must not do before it is told to."""
        try:
            await part
        except EndedError:
            if not self.ending:
                raise
