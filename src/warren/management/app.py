"""The HTTP API put together: the service `http` of a broker."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from warren.management.aliveness import Aliveness
from warren.management.audit import tell_of_actions
from warren.management.auth import authenticate
from warren.management.bindings import Bindings
from warren.management.channels import Channels
from warren.management.cluster import Cluster
from warren.management.connection import HttpConnection, Visitors
from warren.management.connections import Connections
from warren.management.consumers import Consumers
from warren.management.context import Context
from warren.management.definitions import DefinitionsResource
from warren.management.endpoint import Endpoint, Resource
from warren.management.errors import answer_errors
from warren.management.exchanges import Exchanges
from warren.management.features import Features
from warren.management.federation_links import FederationLinks
from warren.management.getting import Getting
from warren.management.headers import Cors, add_security_headers
from warren.management.health_checks import HealthChecks
from warren.management.limits import Limits
from warren.management.log_lines import LogLines
from warren.management.login_attempts import LoginAttemptsOfNode
from warren.management.login_settings import LoginSettings
from warren.management.message_jobs import MessageJobs
from warren.management.nodes import Nodes
from warren.management.openapi import Description
from warren.management.overview import Overview
from warren.management.parameters import GlobalParameters, VhostParameters
from warren.management.pausing import Pausing
from warren.management.peek import Peek
from warren.management.permissions import UserPermissions, UserTopicPermissions
from warren.management.policies import OperatorPolicies, Policies
from warren.management.probes import Probes
from warren.management.prometheus import Prometheus
from warren.management.publishing import Publishing
from warren.management.queue_changes import QueueChanges
from warren.management.queues import Queues
from warren.management.rights import Right
from warren.management.segments import Segments
from warren.management.shards import Shards
from warren.management.shovels import Shovels
from warren.management.slow_requests import measure
from warren.management.stream_ends import StreamEnds
from warren.management.streams import Streams
from warren.management.users import Users
from warren.management.vhosts import Vhosts
from warren.management.websocket import AmqpOverWebSocket, WebSocketLink
from warren.server.address import Address
from warren.server.app import STOP_REASON, Broker
from warren.server.config import Config
from warren.server.doorway import Manners
from warren.server.listeners import HTTP, HTTPS, PROMETHEUS
from warren.session.connection import connections_of

RESOURCES = (
    AmqpOverWebSocket,
    DefinitionsResource,
    GlobalParameters,
    Limits,
    LoginAttemptsOfNode,
    LoginSettings,
    MessageJobs,
    Aliveness,
    Bindings,
    Channels,
    Cluster,
    Connections,
    Consumers,
    Exchanges,
    Features,
    FederationLinks,
    Getting,
    HealthChecks,
    LogLines,
    Nodes,
    OperatorPolicies,
    Overview,
    Policies,
    Pausing,
    Peek,
    Probes,
    Prometheus,
    Publishing,
    QueueChanges,
    Queues,
    Segments,
    Shards,
    Shovels,
    StreamEnds,
    Streams,
    UserPermissions,
    UserTopicPermissions,
    Users,
    VhostParameters,
    Vhosts,
)
REQUEST_BYTES_MAX = 16 * 1024 * 1024
STOP_SECONDS_MAX = 1.0  # for requests to finish
PLACES: dict[str, tuple[str, Callable[[Config], tuple[Address, ...]]]] = {
    HTTP: ("http_port", Config.http_addresses),
    HTTPS: ("http_tls_port", Config.https_addresses),
    PROMETHEUS: ("prometheus_port", Config.prometheus_addresses),
}
"""Where each protocol is served, and the setting to name if that cannot be."""


def endpoints_of(context: Context) -> list[Endpoint]:
    """All endpoints, with that of their description."""
    resources: list[Resource] = [resource(context) for resource in RESOURCES]
    endpoints = [endpoint for resource in resources for endpoint in resource.endpoints()]
    return [*endpoints, *Description(endpoints).endpoints()]


def make_app(context: Context) -> web.Application:
    endpoints = endpoints_of(context)
    public = {endpoint.path for endpoint in endpoints if endpoint.right is Right.PUBLIC}
    config = context.broker.config
    cors = Cors(config.http_cors_origins, config.http_cors_max_age)
    app = web.Application(
        middlewares=[
            measure(context.broker.world.watchdog),
            cors.answer_preflight(),
            tell_of_actions(context.node.events),
            answer_errors(context.node.world.report),
            authenticate(context.node, public),
        ],
        client_max_size=REQUEST_BYTES_MAX,
    )
    app.on_response_prepare.append(add_security_headers)
    app.on_response_prepare.append(cors.add_headers)
    app.add_routes([endpoint.route() for endpoint in endpoints])
    return app


class HttpService:
    """Listens on the addresses that the settings name for its protocols, and serves an application there."""

    def __init__(
        self,
        broker: Broker,
        make_app: Callable[[Context], web.Application] = make_app,
        protocols: tuple[str, ...] = (HTTP, HTTPS),
    ) -> None:
        self.broker = broker
        self.make_app = make_app
        self.protocols = protocols  # as `Listeners` names them
        self.runner: web.AppRunner | None = None
        self.context: Context | None = None

    @property
    def address(self) -> str:
        return next(
            port.address for protocol in self.protocols for port in self.broker.listeners.of(protocol)
        )

    async def start(self) -> None:
        self.context = Context(self.broker)
        self.runner = web.AppRunner(
            self.make_app(self.context),
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=STOP_SECONDS_MAX,
        )
        await self.runner.setup()
        visitors = Visitors(self.broker.descriptors)
        for protocol in self.protocols:
            setting, addresses = PLACES[protocol]
            for address in addresses(self.broker.config):
                await self._listen(protocol, address, visitors, setting)

    async def _listen(self, protocol: str, address: Address, visitors: Visitors, setting: str) -> None:
        server = None if self.runner is None else self.runner.server
        assert server is not None, "the runner was set up"
        tls = self.broker.tls if protocol == HTTPS else None
        proxied = protocol != PROMETHEUS and address.is_proxied(self.broker.config.http_proxy_protocol)
        manners = Manners(
            make_protocol=lambda header: HttpConnection(server, visitors, tls, header),
            tls=tls,
            proxy_protocol=proxied,
        )
        try:
            await self.broker.listeners.add(protocol, address, manners)
        except OSError as error:
            flag = "--" + setting.replace("_", "-")
            reason = f"{setting} = {address.port} ({flag}, -1 for none): {error.strerror}"
            raise OSError(error.errno, reason) from error

    async def stop(self) -> None:
        for connection in connections_of(self.broker.node):
            if isinstance(connection.link, WebSocketLink):
                connection.force_close(STOP_REASON)
        if self.runner is not None:
            await self.runner.cleanup()
        if self.context is not None:
            self.context.close()
