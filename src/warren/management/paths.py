"""Patterns for the names in the API's paths. Names are percent-encoded there: `%2F` is the vhost `/`."""

from __future__ import annotations

VHOST = "{vhost:[^/]+}"
QUEUE = "{queue:[^/]+}"
NAME = "{name:[^/]+}"
USER = "{user:[^/]+}"
COMPONENT = "{component:[^/]+}"
EXCHANGE = "{exchange:[^/]+}"
