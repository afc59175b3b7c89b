"""`/api/health/checks/…`: RabbitMQ's health checks. One that fails is answered by 503 with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from aiohttp import web

from warren.broker.rules import queue_type
from warren.management.context import Context
from warren.management.digits import number_of
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest, Handler
from warren.management.json_text import json_response
from warren.management.listeners import listeners_of
from warren.management.listing import Row
from warren.management.paths import NAME, check_node
from warren.management.schema import TEXT, one_of, record
from warren.server.listeners import AMQPS, HTTPS
from warren.server.tls import Loaded

CHECKS = "/api/health/checks"
FAILED_STATUS = 503
DAY_SECONDS = 86_400
WITHIN_MAX = 999_999_999
UNITS = {"days": 1, "weeks": 7, "months": 365 / 12, "years": 365}  # in days
PROTOCOLS = {  # other names for what we listen for, which RabbitMQ knows as well
    **dict.fromkeys(("amqp091", "amqp0.9.1", "amqp0-9-1", "amqp0_9_1"), "amqp"),
    "amqps": AMQPS,
    **dict.fromkeys(("http1", "http1.1", "http_api", "management", "management_ui", "ui"), "http"),
}
STATUS = record({"status": one_of("ok", "failed")}, reason=TEXT)


class HealthChecks:
    def __init__(self, context: Context) -> None:
        self.broker = context.broker
        self.context = context
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            _check("alarms", self.alarms, "Whether the cluster has alarms."),
            _check("local-alarms", self.local_alarms, "Whether this node has alarms."),
            _check(
                "certificate-expiration/{within:[^/]+}/{unit:[^/]+}",
                self.certificates,
                "Whether a certificate expires within so many days, weeks, months or years.",
            ),
            _check("port-listener/{port:[^/]+}", self.port, "Whether the node listens on this port."),
            _check(
                "protocol-listener/{protocol:[^/]+}", self.protocol, "Whether the node speaks this protocol."
            ),
            _check("virtual-hosts", self.all_well, "Whether all vhosts run."),
            _check("node-is-mirror-sync-critical", self.single_node, "Whether mirrors depend on this node."),
            _check("node-is-quorum-critical", self.quorum, "Whether queues would stop without this node."),
            _get("/api/healthchecks/node", self.all_well, "RabbitMQ's old health check."),
            _get("/api/healthchecks/node/", self.all_well, "The same, as amqpstorm asks for it."),
            _get(f"/api/healthchecks/node/{NAME}", self.of_node, "The same of one node."),
        ]

    async def alarms(self, request: web.Request) -> web.StreamResponse:
        return self._alarms("There are alarms in effect in the cluster")

    async def local_alarms(self, request: web.Request) -> web.StreamResponse:
        return self._alarms("There are alarms in effect on the node")

    def _alarms(self, reason: str) -> web.Response:
        alarms = [{"node": self.node.name, "resource": resource} for resource in sorted(self.node.alarms)]
        return failed(reason, alarms=alarms) if alarms else well()

    async def certificates(self, request: web.Request) -> web.StreamResponse:
        within, unit = number_of(request.match_info["within"]), request.match_info["unit"].lower()
        if within is None or within > WITHIN_MAX:
            raise BadRequest("Invalid expiration value.")
        if unit not in UNITS:
            raise BadRequest(f"Time unit not recognised. Supported units: {', '.join(UNITS)}.")
        expiring = self._expiring(within * UNITS[unit] * DAY_SECONDS)
        return failed("Certificates expiring", expired=expiring) if expiring else well()

    def _expiring(self, seconds: float) -> list[Row]:
        """The listeners whose certificates expire within this time. All listeners have the same ones."""
        tls = self.broker.tls
        if tls is None:
            return []
        told = _expiring_before(tls.loaded, self.broker.world.time_ms() / 1000 + seconds)
        ports = [each for each in listeners_of(self.broker) if each.protocol in {AMQPS, HTTPS}]
        return [
            {
                "node": self.node.name,
                "protocol": each.protocol,
                "interface": each.host,
                "port": each.port,
                **told,
            }
            for each in ports
            if told
        ]

    async def port(self, request: web.Request) -> web.StreamResponse:
        wanted = number_of(request.match_info["port"])
        if wanted is None:
            raise BadRequest("Invalid port")
        ports = [each.port for each in listeners_of(self.broker)]
        if wanted in ports:
            return well(port=wanted)
        return failed("No active listener", missing=wanted, ports=ports)

    async def protocol(self, request: web.Request) -> web.StreamResponse:
        given = request.match_info["protocol"].lower()
        wanted = PROTOCOLS.get(given, given)
        protocols = [each.protocol for each in listeners_of(self.broker)]
        if wanted in protocols:
            return well(protocol=wanted)
        return failed("No active listener", missing=wanted, protocols=protocols)

    async def all_well(self, request: web.Request) -> web.StreamResponse:
        """A vhost that is there runs."""
        return well()

    async def single_node(self, request: web.Request) -> web.StreamResponse:
        return well(reason="single node cluster")

    async def quorum(self, request: web.Request) -> web.StreamResponse:
        """In the words of RabbitMQ."""
        cluster = self.context.cluster
        if cluster is None:
            return await self.single_node(request)
        vhosts = self.node.vhosts
        names = [each for each in cluster.critical_queues() if each[0] in vhosts]
        found = [vhosts[vhost].queues.get(name) for vhost, name in names]
        queues = [
            {
                "name": queue.name,
                "virtual_host": queue.vhost,
                "readable_name": queue.what,
                "type": queue_type(queue.arguments),
            }
            for queue in found
            if queue is not None
        ]
        reason = "There are queues that would lose their quorum if the target node is shut down"
        return failed(reason, queues=queues) if queues else well()

    async def of_node(self, request: web.Request) -> web.StreamResponse:
        check_node(self.node, request)
        return well()


def _expiring_before(loaded: Loaded, end: float) -> Row:
    """The files and the times at which their certificates expire; empty if none does before `end`."""
    cert = [each for each in loaded.cert_expires if each < end]
    authorities = [each for each in loaded.ca_expires if each < end]
    if not cert and not authorities:
        return {}
    return {
        "certfile": loaded.settings.cert,
        "cacertfile": loaded.settings.ca,
        "certfile_expires_on": _times(cert),
        "cacertfile_expires_on": _times(authorities),
    }


def _times(seconds: Iterable[int]) -> list[str]:
    return [datetime.fromtimestamp(each, UTC).strftime("%Y-%m-%d %H:%M:%S") for each in seconds]


def well(**more: object) -> web.Response:
    return json_response({"status": "ok", **more})


def failed(reason: str, **more: object) -> web.Response:
    told: Row = {"status": "failed", "reason": reason, **more}
    return json_response(told, status=FAILED_STATUS)


def _check(path: str, handler: Handler, summary: str) -> Endpoint:
    return _get(f"{CHECKS}/{path}", handler, summary)


def _get(path: str, handler: Handler, summary: str) -> Endpoint:
    return Endpoint(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        gives=STATUS,
        others={FAILED_STATUS: STATUS},
    )
