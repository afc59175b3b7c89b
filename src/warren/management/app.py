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
from warren.management.connections import Connections
from warren.management.consumers import Consumers
from warren.management.context import Context
from warren.management.definitions import DefinitionsResource
from warren.management.endpoint import Endpoint, Resource
from warren.management.errors import answer_errors
from warren.management.exchanges import Exchanges
from warren.management.getting import Getting
from warren.management.headers import Cors, add_security_headers
from warren.management.health_checks import HealthChecks
from warren.management.limits import Limits
from warren.management.log_lines import LogLines
from warren.management.login_attempts import LoginAttemptsOfNode
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
from warren.management.stream_ends import StreamEnds
from warren.management.streams import Streams
from warren.management.users import Users
from warren.management.vhosts import Vhosts
from warren.server.app import Broker

RESOURCES = (
    DefinitionsResource,
    GlobalParameters,
    Limits,
    LoginAttemptsOfNode,
    MessageJobs,
    Aliveness,
    Bindings,
    Channels,
    Cluster,
    Connections,
    Consumers,
    Exchanges,
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
IDLE_SECONDS_MAX = 75.0  # of a connection between two requests


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
    """Listens on the broker's address, on the port of a setting, and serves an application there."""

    def __init__(
        self,
        broker: Broker,
        make_app: Callable[[Context], web.Application] = make_app,
        setting: str = "http_port",
    ) -> None:
        self.broker = broker
        self.make_app = make_app
        self.setting = setting
        self.runner: web.AppRunner | None = None
        self.context: Context | None = None

    @property
    def address(self) -> str:
        assert self.runner is not None, "the service was started"
        host, port = self.runner.addresses[0][:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self) -> None:
        config = self.broker.config
        port: int = getattr(config, self.setting)
        self.context = Context(self.broker)
        self.runner = web.AppRunner(
            self.make_app(self.context),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS_MAX,
            shutdown_timeout=STOP_SECONDS_MAX,
        )
        await self.runner.setup()
        counted = self.broker.descriptors.others
        self.broker.descriptors.others = lambda: counted() + self._descriptors()
        try:
            await web.TCPSite(self.runner, config.bind, port).start()
        except OSError as error:
            flag = "--" + self.setting.replace("_", "-")
            reason = f"{self.setting} = {port} ({flag}, -1 for none): {error.strerror}"
            raise OSError(error.errno, reason) from error

    def _descriptors(self) -> int:
        """Two for each connection: its socket, and a file that it may be reading."""
        server = None if self.runner is None else self.runner.server
        return 0 if server is None else 2 * len(server.connections)

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
        if self.context is not None:
            self.context.close()
