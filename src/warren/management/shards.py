"""`/api/cluster/…`: the shards of a cluster, as this node knows them, and what operators do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from aiohttp import web

from warren.management.columns import object_endpoint, send_object
from warren.management.context import Context
from warren.management.digits import number_of
from warren.management.endpoint import Endpoint, restricted
from warren.management.errors import BadRequest, ObjectNotFound, Unavailable
from warren.management.fields import fields_in
from warren.management.paths import NAME
from warren.management.rights import Right
from warren.management.schema import COUNT, FLAG, NUMBER, TEXT, or_none, record, rows
from warren.server.cluster.views import CannotReachEtcd, ClusterOperations, OperationRefused, ShardView

DRAIN = "/api/cluster/drain"
FOLLOWER = record(
    {
        "node": TEXT,
        "is_in_step": FLAG,
        "in_step_seconds": or_none(NUMBER),
        "batches_unacked": COUNT,
        "bytes_in_flight": COUNT,
    }
)
SHARD = record(
    {
        "number": COUNT,
        "epoch": COUNT,
        "leader": or_none(TEXT),
        "replicas": rows(TEXT),
        "in_sync": rows(TEXT),
        "joining": rows(TEXT),
        "leaving": rows(TEXT),
        "role": TEXT,
        "is_older_in_etcd": FLAG,
        "followers": rows(FOLLOWER),
    }
)
FORCED = record({"node": TEXT, "epoch": COUNT, "were_in_sync": rows(TEXT), "queues": COUNT})


class Shards:
    def __init__(self, context: Context) -> None:
        self.context = context

    def endpoints(self) -> list[Endpoint]:
        return [
            object_endpoint(
                "/api/cluster/shards",
                self.all,
                "The shards of the cluster, as this node knows them; none if it is alone.",
                right=Right.MONITORING,
                gives=rows(SHARD),
            ),
            *restricted(
                Right.ADMINISTRATOR,
                Endpoint(
                    method="PUT",
                    path="/api/cluster/shards/{shard:[^/]+}/leader",
                    handler=self.move,
                    summary="Hand a shard that this node leads to another node that is in sync, for good.",
                    takes=record({"node": TEXT}),
                    done=(204,),
                ),
                Endpoint(
                    method="POST",
                    path="/api/cluster/shards/{shard:[^/]+}/forced-leader",
                    handler=self.force_leader,
                    summary="Have this node lead a shard of which all nodes in sync are lost.",
                    takes=record({"node": TEXT, "accept_data_loss": FLAG}),
                    gives=FORCED,
                    refuses=(BadRequest.status, Unavailable.status),
                ),
                Endpoint(
                    method="DELETE",
                    path=f"/api/cluster/nodes/{NAME}",
                    handler=self.remove,
                    summary="Have a node keep nothing: others get copies of what it keeps.",
                    done=(204,),
                    refuses=(BadRequest.status, Unavailable.status),
                ),
                Endpoint(
                    method="PUT",
                    path=DRAIN,
                    handler=self.drain,
                    summary="Hand over all that this node leads; lead nothing until its next start.",
                    done=(204,),
                    refuses=(BadRequest.status, Unavailable.status),
                ),
                Endpoint(
                    method="DELETE",
                    path=DRAIN,
                    handler=self.undrain,
                    summary="Let this node lead again.",
                    done=(204,),
                    refuses=(BadRequest.status, Unavailable.status),
                ),
            ),
        ]

    async def all(self, request: web.Request) -> web.StreamResponse:
        cluster = self.context.cluster
        shards: list[ShardView] = [] if cluster is None else cluster.shards()
        return send_object(request, [asdict(shard) for shard in shards])

    async def move(self, request: web.Request) -> web.StreamResponse:
        shard = number_of(request.match_info["shard"])
        given = await fields_in(request, '{"node": name}')
        node = given.text("node")
        with self._asked() as cluster:
            if shard is None:
                raise ObjectNotFound("shards are numbers")
            cluster.move(shard, node)
        return web.Response(status=204)

    async def force_leader(self, request: web.Request) -> web.StreamResponse:
        shard = number_of(request.match_info["shard"])
        given = await fields_in(request, '{"node": name, "accept_data_loss": true}')
        node = given.text("node")
        if not given.flag("accept_data_loss", default=False):
            raise BadRequest(
                "what was confirmed may be lost: say that you accept that, with accept_data_loss"
            )
        with self._asked() as cluster:
            if shard is None:
                raise ObjectNotFound("shards are numbers")
            forced = await cluster.force_leader(shard, node)
        return send_object(request, asdict(forced))

    async def remove(self, request: web.Request) -> web.StreamResponse:
        with self._asked() as cluster:
            await cluster.remove(request.match_info["name"])
        return web.Response(status=204)

    async def drain(self, _request: web.Request) -> web.StreamResponse:
        with self._asked() as cluster:
            await cluster.drain()
        return web.Response(status=204)

    async def undrain(self, _request: web.Request) -> web.StreamResponse:
        with self._asked() as cluster:
            await cluster.undrain()
        return web.Response(status=204)

    @contextmanager
    def _asked(self) -> Iterator[ClusterOperations]:
        """What cannot be done is answered with the reason."""
        cluster = self.context.cluster
        if cluster is None:
            raise BadRequest("this node is not in a cluster")
        try:
            yield cluster
        except CannotReachEtcd as error:
            raise Unavailable(str(error)) from error
        except OperationRefused as error:
            raise BadRequest(str(error)) from error
