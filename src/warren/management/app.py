"""The HTTP API put together: the service `http` of a broker."""

from __future__ import annotations

from aiohttp import web

from warren.management.auth import authenticate
from warren.management.context import Context
from warren.management.definitions import DefinitionsExport
from warren.management.endpoint import Endpoint, Resource
from warren.management.errors import answer_errors
from warren.management.metrics import MetricsText
from warren.management.nodes import Nodes
from warren.management.openapi import Description
from warren.management.overview import Overview
from warren.management.probes import Probes
from warren.management.queues import Queues
from warren.management.rights import Right
from warren.management.segments import Segments
from warren.management.stream_ends import StreamEnds
from warren.management.streams import Streams
from warren.management.vhosts import Vhosts
from warren.management.websocket import AmqpOverWebSocket, WebSocketLink
from warren.server.address import Address
from warren.server.app import STOP_REASON, Broker
from warren.server.doorway import Manners
from warren.server.listener import ACCEPTED_A_TURN
from warren.server.listeners import HTTP, HTTPS
from warren.session.connection import connections_of

RESOURCES = (
    AmqpOverWebSocket,
    DefinitionsExport,
    MetricsText,
    Nodes,
    Overview,
    Probes,
    Queues,
    Segments,
    StreamEnds,
    Streams,
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
    app = web.Application(
        middlewares=[answer_errors(context.node.world.report), authenticate(context.node, public)],
        client_max_size=REQUEST_BYTES_MAX,
    )
    app.add_routes([endpoint.route() for endpoint in endpoints])
    return app


class HttpService:
    """Listens on the addresses that the settings name for HTTP, with TLS and without."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.runner: web.AppRunner | None = None
        self.context: Context | None = None

    @property
    def address(self) -> str:
        listeners = self.broker.listeners
        return [*listeners.of(HTTP), *listeners.of(HTTPS)][0].address

    async def start(self) -> None:
        config = self.broker.config
        self.context = Context(self.broker)
        self.runner = web.AppRunner(
            make_app(self.context),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS_MAX,
            shutdown_timeout=STOP_SECONDS_MAX,
        )
        await self.runner.setup()
        self.broker.descriptors.counters.append(self._descriptors)
        for address in config.http_addresses():
            await self._listen(HTTP, address, f"http_port = {address.port} (--http-port, -1 for no HTTP API)")
        for address in config.https_addresses():
            await self._listen(HTTPS, address, f"http_tls_port = {address.port}")

    async def _listen(self, protocol: str, address: Address, setting: str) -> None:
        server = None if self.runner is None else self.runner.server
        assert server is not None, "the runner was set up"
        manners = Manners(
            make_protocol=lambda _header: server(),
            tls=self.broker.tls if protocol == HTTPS else None,
            proxy_protocol=False,
        )
        try:
            await self.broker.listeners.add(protocol, address, manners, share=ACCEPTED_A_TURN)
        except OSError as error:
            raise OSError(error.errno, f"{setting}: {error.strerror}") from error

    def _descriptors(self) -> int:
        """Two for each connection: its socket, and a file that it may be reading."""
        server = None if self.runner is None else self.runner.server
        return 0 if server is None else 2 * len(server.connections)

    async def stop(self) -> None:
        for connection in connections_of(self.broker.node):
            if isinstance(connection.link, WebSocketLink):
                connection.force_close(STOP_REASON)
        if self.runner is not None:
            await self.runner.cleanup()
        if self.context is not None:
            self.context.close()
