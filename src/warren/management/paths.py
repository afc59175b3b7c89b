"""Patterns for the names in the API's paths. Names are percent-encoded there: `%2F` is the vhost `/`."""

from __future__ import annotations

from aiohttp import web

from warren.broker.node import Node
from warren.management.errors import ObjectNotFound

VHOST = "{vhost:[^/]+}"
QUEUE = "{queue:[^/]+}"
EXCHANGE = "{exchange:[^/]+}"
SOURCE = "{source:[^/]+}"
DESTINATION = "{destination:[^/]+}"
NAME = "{name:[^/]+}"
USER = "{user:[^/]+}"
COMPONENT = "{component:[^/]+}"
DEFAULT_EXCHANGE = "amq.default"  # in paths, since the default exchange has an empty name


def check_node(node: Node, request: web.Request) -> None:
    """The path has to name this node."""
    name = request.match_info["name"]
    if name != node.name:
        raise ObjectNotFound(f"no node '{name}': this one is '{node.name}'")


def exchange_name(request: web.Request, part: str = "exchange") -> str:
    """The exchange that a part of the path names."""
    name = request.match_info[part]
    return "" if name == DEFAULT_EXCHANGE else name
