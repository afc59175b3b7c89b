"""How many files the process may have open. Each connection is one."""

from __future__ import annotations

import resource

SPARE = 64
"""Open files that are not connections."""


def allow_connections(wanted: int) -> None:
    """Raise the process's own limit as far as the system allows. Connections beyond that fail to open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + SPARE
    if soft != resource.RLIM_INFINITY and soft < files:
        limit = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
