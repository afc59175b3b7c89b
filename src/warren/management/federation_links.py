"""`/api/federation-links`, as RabbitMQ's plugin `rabbitmq_federation_management` has it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from aiohttp import web

from warren.broker.vhost import Vhost
from warren.management.auth import visible_vhost, visible_vhosts
from warren.management.context import Context
from warren.management.endpoint import Endpoint, restricted
from warren.management.errors import ObjectNotFound
from warren.management.listing import Row, list_endpoint, send_list
from warren.management.paths import VHOST
from warren.management.rights import Right
from warren.relay.federation import Federation, Running
from warren.relay.federation_link import ERROR, QUEUE, RUNNING, status_of
from warren.relay.service import Relays


class FederationLinks:
    def __init__(self, context: Context) -> None:
        self.node = context.node
        self.broker = context.broker

    def endpoints(self) -> list[Endpoint]:
        links = "/api/federation-links"
        return [
            *restricted(
                Right.MONITORING,
                list_endpoint(links, self.all, "All federation links."),
                list_endpoint(f"{links}/state/down", self.all_down, "Those that have failed."),
                list_endpoint(f"{links}/{VHOST}", self.of_vhost, "The federation links of a vhost."),
                list_endpoint(
                    f"{links}/{VHOST}/state/down", self.down_of_vhost, "Those of a vhost that have failed."
                ),
            ),
            Endpoint(
                method="DELETE",
                path=f"{links}/vhost/{VHOST}/{{id:[^/]+}}/{{node:[^/]+}}/restart",
                handler=self.restart,
                summary="Start a federation link again.",
                right=Right.POLICYMAKER,
                done=(204,),
            ),
        ]

    @property
    def federation(self) -> Federation | None:
        """None while the broker starts."""
        relays = self.broker.services.get("relays")
        return relays.federation if isinstance(relays, Relays) else None

    async def all(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, self._rows(visible_vhosts(self.node, request)))

    async def all_down(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, down(self._rows(visible_vhosts(self.node, request))))

    async def of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, self._rows([visible_vhost(self.node, request)]))

    async def down_of_vhost(self, request: web.Request) -> web.StreamResponse:
        return await _send(request, down(self._rows([visible_vhost(self.node, request)])))

    async def restart(self, request: web.Request) -> web.StreamResponse:
        vhost = visible_vhost(self.node, request)
        link, node = request.match_info["id"], request.match_info["node"]
        missing = ObjectNotFound(f"no federation link '{link}' in vhost '{vhost.name}' on node '{node}'")
        if self.federation is None or node != self.node.name:
            raise missing
        try:
            self.federation.restart(link, vhost.name)
        except KeyError:
            raise missing from None
        return web.Response(status=204)

    def _rows(self, vhosts: list[Vhost]) -> Iterator[Row]:
        names = {vhost.name for vhost in vhosts}
        for running in [] if self.federation is None else self.federation.all():
            if running.link.key.place.vhost in names:
                yield {"node": self.node.name, **told(running)}


async def _send(request: web.Request, links: Iterator[Row]) -> web.StreamResponse:
    """Send these links. They go by the names of their exchanges and queues."""

    def name_of(row: Row) -> str:
        return str(row[row["type"]])

    return await send_list(
        request,
        list(links),
        lambda row: row,
        name_of,
        order=lambda row: (row["vhost"], row["type"], name_of(row)),
    )


def down(links: Iterator[Row]) -> Iterator[Row]:
    return (link for link in links if link["status"] == ERROR)


def told(running: Running) -> Row:
    """What RabbitMQ tells of a link, but for its channel."""
    link, key, status = running.link, running.link.key, running.supervised.status
    kind = key.place.kind
    row: Row = {kind: key.place.name, f"upstream_{kind}": key.there}
    if kind == QUEUE:
        row["consumer_tag"] = link.upstream.consumer_tag
    row |= {
        "type": kind,
        "vhost": key.place.vhost,
        "upstream": key.upstream,
        "id": key.id,
        "status": status_of(status.state),
    }
    if status_of(status.state) == RUNNING:
        row["local_connection"] = link.local_connection
    elif status.reason:
        row["error" if running.supervised.is_here else "reason"] = status.reason
    since = datetime.fromtimestamp(status.since_ms / 1000, UTC)
    return row | {"uri": link.end.shown, "timestamp": f"{since:%Y-%m-%d %H:%M:%S}"}
