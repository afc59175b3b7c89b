"""Hands what happens on the links to other nodes to whom it concerns: the shards, and the letters."""

from __future__ import annotations

from collections.abc import Sequence

from warren.cluster.config import RunId, StoreId
from warren.cluster.messages import Letters, LettersDone, Message
from warren.server.cluster.letter_service import LetterService
from warren.server.cluster.shard_runner import ShardRunner


class Switchboard:
    """The `LinkOwner` of a node's links to others."""

    def __init__(self, shards: ShardRunner, letters: LetterService) -> None:
        self.shards = shards
        self.letters = letters

    def link_up(self, store: StoreId, run: RunId) -> None:
        self.shards.link_up(store, run)
        self.letters.link_up(store, run)

    def link_down(self, store: StoreId) -> None:
        self.shards.link_down(store)
        self.letters.link_down(store)

    def peer_gone(self, store: StoreId) -> None:
        self.shards.peer_gone(store)
        self.letters.link_down(store)

    def received(self, store: StoreId, messages: Sequence[Message]) -> None:
        letters = [message for message in messages if isinstance(message, Letters | LettersDone)]
        if letters:
            messages = [message for message in messages if not isinstance(message, Letters | LettersDone)]
        if messages:
            self.shards.received(store, messages)
        if letters:
            for letter in letters:
                self.letters.received(store, letter)
            self.letters.end_turn()
