"""Patterns for the names in the API's paths. Names are percent-encoded there: `%2F` is the vhost `/`."""

from __future__ import annotations

from aiohttp import web

VHOST = "{vhost:[^/]+}"
QUEUE = "{queue:[^/]+}"
EXCHANGE = "{exchange:[^/]+}"
SOURCE = "{source:[^/]+}"
DESTINATION = "{destination:[^/]+}"
NAME = "{name:[^/]+}"
USER = "{user:[^/]+}"
COMPONENT = "{component:[^/]+}"
DEFAULT_EXCHANGE = "amq.default"  # in paths, since the default exchange has an empty name


def exchange_name(request: web.Request, part: str = "exchange") -> str:
    """The exchange that a part of the path names."""
    name = request.match_info[part]
    return "" if name == DEFAULT_EXCHANGE else name
