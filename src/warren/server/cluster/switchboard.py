"""Hands what happens on the links to other nodes to whom it concerns: shards, letters, and figures."""

from __future__ import annotations

from collections.abc import Sequence

from warren.cluster.config import RunId, StoreId
from warren.cluster.messages import Figures, Letters, LettersDone, Message
from warren.server.cluster.figure_service import FigureService
from warren.server.cluster.letter_service import LetterService
from warren.server.cluster.shard_runner import ShardRunner

OF_NODES = Letters | LettersDone | Figures  # these concern no shard


class Switchboard:
    """The `LinkOwner` of a node's links to others."""

    def __init__(self, shards: ShardRunner, letters: LetterService, figures: FigureService) -> None:
        self.shards = shards
        self.letters = letters
        self.figures = figures

    def link_up(self, store: StoreId, run: RunId) -> None:
        self.shards.link_up(store, run)
        self.letters.link_up(store, run)
        self.figures.link_up()

    def link_down(self, store: StoreId) -> None:
        self.shards.link_down(store)
        self.letters.link_down(store)

    def peer_gone(self, store: StoreId) -> None:
        self.shards.peer_gone(store)
        self.letters.link_down(store)

    def received(self, store: StoreId, messages: Sequence[Message]) -> None:
        others = [message for message in messages if isinstance(message, OF_NODES)]
        if others:
            messages = [message for message in messages if not isinstance(message, OF_NODES)]
        if messages:
            self.shards.received(store, messages)
        if others:
            self._received_of_node(store, others)

    def _received_of_node(self, store: StoreId, messages: Sequence[Message]) -> None:
        has_letters = False
        for message in messages:
            if isinstance(message, Figures):
                self.figures.received(message)
            elif isinstance(message, Letters | LettersDone):
                self.letters.received(store, message)
                has_letters = True
        if has_letters:
            self.letters.end_turn()
