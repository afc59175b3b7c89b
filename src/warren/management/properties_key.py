"""RabbitMQ's `properties_key`, which tells the bindings between one source and one destination apart:

~               an empty routing key, no arguments
orders.%23      a routing key, percent-encoded; spaces are `+`, and `~` is encoded, too
orders~Ab3…     the same with arguments: behind the `~` is a hash of them
"""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import quote_plus

from warren.amqp.table import Table, encode_table
from warren.broker.binding import Binding

NOTHING = "~"


def properties_key(routing_key: str, arguments: Table) -> str:
    key = quote_plus(routing_key.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")
    if arguments:
        return f"{key}~{_hash(arguments)}"
    return key or NOTHING


def key_of(binding: Binding) -> str:
    return properties_key(binding.routing_key, binding.arguments)


def _hash(arguments: Table) -> str:
    digest = hashlib.md5(encode_table(arguments), usedforsecurity=False).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_named(binding: Binding, key: str) -> bool:
    """Whether this is the binding that a path names. Clients may leave the routing key as it is, if it has no
    `~` in it.
    """
    return key == key_of(binding) or (not binding.arguments and key == binding.routing_key)
