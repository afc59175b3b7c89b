"""Parts of the API's paths. In a name is whatever there is, percent-encoded: `%2F` for the vhost `/`."""

from __future__ import annotations

VHOST = "{vhost:[^/]+}"
QUEUE = "{queue:[^/]+}"
NAME = "{name:[^/]+}"
