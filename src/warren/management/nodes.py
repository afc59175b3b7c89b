"""`/api/nodes`: this node in RabbitMQ's form, and what its memory is used for."""

from __future__ import annotations

import os
import resource
import threading

from aiohttp import web

from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import Handler, ObjectNotFound
from warren.management.json_text import json_response
from warren.management.listeners import contexts_of
from warren.management.overview import exchange_types
from warren.management.paths import NAME
from warren.management.rights import Right
from warren.management.schema import TABLE, Schema, rows
from warren.server.descriptors import open_descriptors
from warren.server.memory import resident_bytes
from warren.server.memory_kinds import kinds_of
from warren.session.handshake import COMPATIBLE_VERSION
from warren.session.sasl import MECHANISMS
from warren.version import __version__


class Nodes:
    def __init__(self, context: Context) -> None:
        self.broker = context.broker
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            _get("/api/nodes", self.all, "The nodes of the cluster.", rows(TABLE)),
            _get(f"/api/nodes/{NAME}", self.get, "One node.", TABLE),
            _get(f"/api/nodes/{NAME}/memory", self.memory, "What a node's memory is used for.", TABLE),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        return json_response([self._describe()])

    async def get(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        return json_response(self._describe())

    async def memory(self, request: web.Request) -> web.StreamResponse:
        """The kinds add up to `used`. Freed memory that is kept is not among them, nor is shared memory."""
        self._check(request)
        use = self.broker.memory_alarm.use
        kinds: dict[str, object] = {**kinds_of(self.node, use)}
        used, kept = use.used_bytes(), use.kept_bytes()
        totals = {"used": used, "allocated": used + kept, "rss": resident_bytes()}
        return json_response({"memory": kinds | {"allocated_unused": kept, "total": totals}})

    def _check(self, request: web.Request) -> None:
        if request.match_info["name"] != self.node.name:
            raise ObjectNotFound("Not Found")

    def _describe(self) -> dict[str, object]:
        memory, disk, alarms = self.broker.memory_alarm, self.broker.disk_space, self.node.alarms
        watchdog = self.broker.world.watchdog
        return {
            "name": self.node.name,
            "type": "disc",
            "running": True,
            "being_drained": False,
            "db_dir": str(self.broker.config.data_dir),
            "config_files": [],
            "log_files": [],
            "applications": [
                {"name": "warren", "description": "WarrenMQ", "version": __version__},
                {"name": "rabbit", "description": "compatible with", "version": COMPATIBLE_VERSION},
            ],
            "enabled_plugins": ["rabbitmq_management"],
            "auth_mechanisms": [{"name": name, "description": "", "enabled": True} for name in MECHANISMS],
            "exchange_types": exchange_types(self.node),
            "contexts": contexts_of(self.broker),
            "os_pid": str(os.getpid()),
            "uptime": self.broker.uptime_ms(),
            "processors": os.cpu_count(),
            "rates_mode": "basic",
            "mem_used": memory.use.used_bytes(),
            "mem_limit": memory.limit_bytes,
            "mem_alarm": "memory" in alarms,
            "disk_free": disk.free_bytes(),
            "disk_free_limit": disk.limit_bytes,
            "disk_free_alarm": "disk" in alarms,
            "fd_used": open_descriptors(),
            "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "sockets_used": len(self.node.clients),
            "sockets_total": self.broker.descriptors.connections_max,
            "proc_used": threading.active_count(),
            "mem_calculation_strategy": "allocated",
            "net_ticktime": 60,
            "cluster_links": [],
            "partitions": [],
            "slow_turns": watchdog.slow_turns,
            "slow_turn_ms_max": round(1000 * watchdog.longest_seconds),
        }


def _get(path: str, handler: Handler, summary: str, gives: Schema) -> Endpoint:
    return Endpoint(
        method="GET", path=path, handler=handler, summary=summary, right=Right.MONITORING, gives=gives
    )
