"""`/api/nodes`: this node in RabbitMQ's form, and what its memory is used for, in bytes or in percent.

Of the other nodes of a cluster, this one tells where they are, whether it hears them, and their shards.
"""

from __future__ import annotations

import os
import resource
from functools import partial
from pathlib import Path

from aiohttp import web

from warren.cluster.known_stores import DRAINING
from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.descriptions import auth_mechanisms, exchange_types
from warren.management.endpoint import Endpoint, Parameter
from warren.management.listeners import contexts_of
from warren.management.message_stats import QUERY, Row, stats_for
from warren.management.node_stats import node_stats
from warren.management.paths import NAME, check_node
from warren.management.rights import Right
from warren.management.schema import FLAG, TABLE, rows
from warren.server.cluster.views import NodeView
from warren.server.memory import resident_bytes
from warren.server.memory_kinds import kinds_of
from warren.session.handshake import COMPATIBLE_VERSION
from warren.version import __version__

MEMORY = Parameter("memory", FLAG, "Whether to tell what the memory is used for, too.")
LOG_FILES = ["<stderr>"]
STRATEGY = "allocated"  # how memory is counted, in RabbitMQ's words
THREADS_MAX = Path("/proc/sys/kernel/threads-max")


class Nodes:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.broker = context.broker
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        get = partial(object_endpoint, right=Right.MONITORING)
        return [
            get("/api/nodes", self.all, "The nodes of the cluster.", QUERY, gives=rows(TABLE)),
            get(f"/api/nodes/{NAME}", self.get, "One node.", (*QUERY, MEMORY)),
            get(f"/api/nodes/{NAME}/memory", self.memory, "What a node's memory is used for."),
            get(
                f"/api/nodes/{NAME}/memory/relative",
                self.relative_memory,
                "What a node's memory is used for, in percent.",
            ),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        others = [_other(view) for view in self._views() if not view.is_this]
        return send_object(
            request, sorted([self._describe(request), *others], key=lambda told: str(told["name"]))
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        for view in self._views():
            if view.name == request.match_info["name"] and not view.is_this:
                return send_object(request, _other(view))
        check_node(self.node, request)
        told = self._describe(request)
        if request.query.get(MEMORY.name) == "true":
            told |= {"memory": self._memory()}
        return send_object(request, told)

    def _views(self) -> list[NodeView]:
        """All nodes, in a cluster."""
        cluster = self.context.cluster
        return [] if cluster is None else cluster.nodes()

    async def memory(self, request: web.Request) -> web.StreamResponse:
        check_node(self.node, request)
        return send_object(request, {"memory": self._memory()})

    def _memory(self) -> Row:
        """The kinds add up to `used`. Freed memory that is kept is not among them, nor is shared memory."""
        use = self.broker.memory_alarm.use
        used, kept = use.used_bytes(), use.kept_bytes()
        totals = {"used": used, "erlang": used, "allocated": used + kept, "rss": resident_bytes()}
        return {
            **kinds_of(self.node, use),
            "allocated_unused": kept,
            "reserved_unallocated": max(0, totals["rss"] - totals["allocated"]),
            "strategy": STRATEGY,
            "total": totals,
        }

    async def relative_memory(self, request: web.Request) -> web.StreamResponse:
        """As in RabbitMQ, percentages are rounded up."""
        check_node(self.node, request)
        kinds = kinds_of(self.node, self.broker.memory_alarm.use)
        total = max(1, sum(kinds.values()))
        percent = {kind: -(-100 * size // total) for kind, size in kinds.items()}
        return send_object(request, {"memory": {"total": 100, **percent}})

    def _describe(self, request: web.Request) -> Row:
        stats = stats_for(self.context, request)
        told = self._general() | node_stats(self.broker.figures, stats)
        told |= {"mem_used": self.broker.memory_alarm.use.used_bytes()}  # in samples it is an upper bound
        for view in self._views():
            if view.is_this:
                told |= _in_cluster(view)
        return told | stats.churn_of_node(self.broker.churn, self.node)

    def _general(self) -> Row:
        memory, disk, alarms = self.broker.memory_alarm, self.broker.disk_space, self.node.alarms
        watchdog = self.broker.world.watchdog
        return {
            "name": self.node.name,
            "type": "disc",
            "running": True,
            "being_drained": False,
            "db_dir": str(self.broker.config.data_dir),
            "config_files": [],
            "log_files": LOG_FILES,
            "applications": [
                {"name": "warren", "description": "WarrenMQ", "version": __version__},
                {"name": "rabbit", "description": "compatible with", "version": COMPATIBLE_VERSION},
            ],
            "enabled_plugins": ["rabbitmq_management"],
            "auth_mechanisms": auth_mechanisms(),
            "exchange_types": exchange_types(self.node),
            "contexts": contexts_of(self.broker),
            "os_pid": str(os.getpid()),
            "uptime": self.broker.uptime_ms(),
            "processors": os.cpu_count(),
            "rates_mode": "basic",
            "mem_limit": memory.limit_bytes,
            "mem_alarm": "memory" in alarms,
            "disk_free_limit": disk.limit_bytes,
            "disk_free_alarm": "disk" in alarms,
            "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "sockets_total": self.broker.descriptors.connections_max,
            "proc_total": threads_max(),
            "run_queue": len(self.node.turns.jobs),
            "mem_calculation_strategy": STRATEGY,
            "net_ticktime": 60,
            "cluster_links": [],
            "partitions": [],
            "slow_turns": watchdog.slow_turns,
            "slow_turn_ms_max": round(1000 * watchdog.longest_seconds),
        }


def _other(view: NodeView) -> Row:
    """Another node. RabbitMQ tells as little of a node that is down."""
    return {"name": view.name, "type": "disc", "partitions": [], "cluster_links": [], **_in_cluster(view)}


def _in_cluster(view: NodeView) -> Row:
    """What only the nodes of a cluster have, besides the first two."""
    return {
        "running": view.is_running,
        "being_drained": view.state == DRAINING,
        "state": view.state,
        "amqp_address": view.amqp,
        "http_address": view.http,
        "version": view.version,
        "leads": view.leads,
        "keeps": view.keeps,
        "in_sync": view.in_sync,
    }


def threads_max() -> int:
    """How many threads this process may have: the limit of its user, or of the machine."""
    of_machine = int(THREADS_MAX.read_text())
    of_user, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return of_machine if of_user == resource.RLIM_INFINITY else min(of_user, of_machine)
