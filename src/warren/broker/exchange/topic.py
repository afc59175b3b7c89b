"""topic: the words of the routing key match those of the binding key, where `*` is one word and `#` is any
number of words.

The binding keys form a trie, with a level for each word. Routing walks down the trie with the words of the
routing key; at a `#` it goes on with every possible rest of the words. It remembers where it has been, so
that it takes at most as many steps as nodes times words, however many `#` the bindings have.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.budget import Budget
from warren.amqp.properties import BasicProperties
from warren.amqp.table import Table
from warren.broker.binding import Binding, Destination

ONE, MANY = "*", "#"
STEP_WORK = 3  # units of work for a step of a walk down the trie


class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}  # by the next word
        self.bindings: dict[Binding, None] = {}  # those whose key ends here


class Topic:
    by_properties = False

    def __init__(self, arguments: Table) -> None:
        self.root = _Node()

    def bind(self, binding: Binding) -> None:
        node = self.root
        for word in _words(binding.routing_key):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node()
            node = child
        node.bindings[binding] = None

    def unbind(self, binding: Binding) -> None:
        path = [self.root]
        words = _words(binding.routing_key)
        for word in words:
            path.append(path[-1].children[word])
        del path[-1].bindings[binding]
        for word, parent, node in zip(reversed(words), reversed(path[:-1]), reversed(path), strict=False):
            if node.bindings or node.children:
                break
            del parent.children[word]

    def route(self, routing_key: str, properties: BasicProperties, budget: Budget) -> Iterable[Destination]:
        words = _words(routing_key)
        found: list[Destination] = []
        pending: list[tuple[_Node, int]] = [(self.root, 0)]
        seen: set[tuple[int, int]] = set()
        while pending:
            node, at = pending.pop()
            budget.left -= STEP_WORK
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == len(words):
                found.extend(binding.destination for binding in node.bindings)
            _step(node, words, at, pending)
        return found


def _words(key: str) -> list[str]:
    """The words of a key; an empty key has none."""
    return key.split(".") if key else []


def _step(node: _Node, words: list[str], at: int, pending: list[tuple[_Node, int]]) -> None:
    """Add the nodes to which the walk can go from here, each with the index of the next word."""
    many = node.children.get(MANY)
    if many is not None:
        pending += [(many, rest) for rest in range(at, len(words) + 1)]
    if at < len(words):
        word, one = words[at], node.children.get(ONE)
        if one is not None:
            pending.append((one, at + 1))
        child = None if word in {ONE, MANY} else node.children.get(word)
        if child is not None:
            pending.append((child, at + 1))
