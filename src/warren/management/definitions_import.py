"""Importing definitions as RabbitMQ exports them. Objects are made in RabbitMQ's order, and checked as if a
client declared them. An error names the object; what came before it stays.

As in RabbitMQ, queues and exchanges that are there already stay as they are, and so do the names that begin
with `amq.`, which clients cannot declare. All else is changed to what the file says.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from warren.amqp.errors import AmqpError
from warren.broker.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    SetGlobalParameter,
    SetPermissions,
    SetTopicPermissions,
)
from warren.broker.declarations import RESERVED
from warren.broker.passwords import RABBIT_MD5, RABBIT_SHA256
from warren.broker.rules import CLASSIC, QUEUE_TYPES, TYPE
from warren.management.context import Context
from warren.management.errors import BadRequest
from warren.management.fields import Fields
from warren.management.json_text import batches
from warren.management.parameter_kinds import setting_command
from warren.management.permissions import permissions_in, topic_permissions_in
from warren.management.policies import policy_command
from warren.management.users import user_commands
from warren.management.vhosts import vhost_commands
from warren.server.collector import set_aside_new

OBJECTS_A_TURN = 50
TURNS_A_FREEZE = 10  # so many turns make as many objects as the garbage collector should look through at once
VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")
FIRST_WITH_SHA256 = (3, 6)
Make: TypeAlias = Callable[[Fields], Awaitable[list[Command]]]


class Import:
    """One import, of all definitions or into one vhost."""

    def __init__(self, context: Context, content: dict[str, Any], vhost: str | None = None) -> None:
        self.context = context
        self.node = context.node
        self.content = content  # lists of objects, by kind
        self.vhost = vhost  # if given, all objects are made there

    async def run(self) -> None:
        """Return when everything is safe on disk."""
        kinds = self._kinds() if self.vhost is None else self._kinds_of_vhost()
        try:
            for kind, make in kinds.items():
                await self._make_all(kind, make)
        finally:
            await self.context.execute()

    def _kinds(self) -> dict[str, Make]:
        return {
            "users": self._user,
            "vhosts": self._vhost,
            "permissions": self._permissions,
            "topic_permissions": self._topic_permissions,
            "global_parameters": self._global_parameter,
            **self._kinds_of_vhost(),
        }

    def _kinds_of_vhost(self) -> dict[str, Make]:
        return {
            "exchanges": self._exchange,
            "policies": self._policy,
            "parameters": self._parameter,
            "queues": self._queue,
            "bindings": self._binding,
        }

    async def _make_all(self, kind: str, make: Make) -> None:
        rows = self.content.get(kind) or []
        if not isinstance(rows, list):
            raise BadRequest(f"{kind}: expected a list")
        for turn, batch in enumerate(batches(rows, OBJECTS_A_TURN), start=1):
            await self._make_batch(kind, batch, make)
            if turn % TURNS_A_FREEZE == 0:
                set_aside_new()
            self.node.end_turn()
            await asyncio.sleep(0)

    async def _make_batch(self, kind: str, rows: Iterable[object], make: Make) -> None:
        """One after the other; or together, in a cluster, which agrees on many changes at once."""
        if self.node.proposer is None:
            for row in rows:
                await self._make(kind, row, make)
            return
        found = await asyncio.gather(*(self._make(kind, row, make) for row in rows), return_exceptions=True)
        for error in found:
            if isinstance(error, BaseException):
                raise error

    async def _make(self, kind: str, row: object, make: Make) -> None:
        if not isinstance(row, dict):
            raise BadRequest(f"{kind}: expected a list of objects")
        what = what_is(kind, row)
        for command in await make(Fields(row, what)):
            try:
                await self.context.broker.change(command)
            except AmqpError as error:
                raise BadRequest(f"{what}: {error.text}") from None

    def _vhost_of(self, fields: Fields) -> str:
        return fields.name("vhost") if self.vhost is None else self.vhost

    # --- the commands for one object ---

    async def _user(self, fields: Fields) -> list[Command]:
        algorithm = default_algorithm(self.content.get("rabbit_version"))
        return await user_commands(self.context, fields.name("name"), fields, algorithm)

    async def _vhost(self, fields: Fields) -> list[Command]:
        return vhost_commands(self.node, fields.name("name"), fields)

    async def _permissions(self, fields: Fields) -> list[Command]:
        user, granted = fields.name("user"), permissions_in(fields)
        return [SetPermissions(user=user, vhost=self._known_vhost(fields), permissions=granted)]

    async def _topic_permissions(self, fields: Fields) -> list[Command]:
        return [
            SetTopicPermissions(
                user=fields.name("user"),
                vhost=self._known_vhost(fields),
                exchange=fields.name("exchange"),
                permissions=topic_permissions_in(fields),
            )
        ]

    def _known_vhost(self, fields: Fields) -> str:
        """Permissions could be given for a vhost that is yet to be made; in a file it is a mistake."""
        vhost = self._vhost_of(fields)
        if vhost not in self.node.vhosts:
            raise BadRequest(f"{fields.what}no vhost '{vhost}'")
        return vhost

    async def _global_parameter(self, fields: Fields) -> list[Command]:
        return [SetGlobalParameter(name=fields.name("name"), value=fields.value("value"))]

    async def _parameter(self, fields: Fields) -> list[Command]:
        component, name = fields.name("component"), fields.name("name")
        return [setting_command(self._vhost_of(fields), component, name, fields)]

    async def _policy(self, fields: Fields) -> list[Command]:
        return [policy_command(self._vhost_of(fields), fields.name("name"), fields, operator=False)]

    async def _exchange(self, fields: Fields) -> list[Command]:
        vhost, name = self._vhost_of(fields), fields.name("name")
        known = self.node.vhosts.get(vhost)
        if not name or name.startswith(RESERVED) or (known is not None and name in known.exchanges):
            return []
        return [
            DeclareExchange(
                vhost=vhost,
                name=name,
                type=fields.name("type"),
                durable=fields.flag("durable", True),
                auto_delete=fields.flag("auto_delete", False),
                internal=fields.flag("internal", False),
                arguments=fields.table("arguments", {}),
            )
        ]

    async def _queue(self, fields: Fields) -> list[Command]:
        vhost, name = self._vhost_of(fields), fields.name("name")
        known = self.node.vhosts.get(vhost)
        if name.startswith(RESERVED) or (known is not None and name in known.queues):
            return []
        default_type = (None if known is None else known.metadata.default_queue_type) or CLASSIC
        return [
            DeclareQueue(
                vhost=vhost,
                name=name,
                durable=fields.flag("durable", True),
                auto_delete=fields.flag("auto_delete", False),
                arguments=queue_arguments(fields, default_type),
            )
        ]

    async def _binding(self, fields: Fields) -> list[Command]:
        """A binding to a queue that was left out is left out as well."""
        vhost, destination = self._vhost_of(fields), fields.name("destination")
        kind = fields.text("destination_type")
        if kind not in {"queue", "exchange"}:
            raise BadRequest(f"{fields.what}destination_type: expected queue or exchange")
        to_queue, source = kind == "queue", fields.name("source")
        known = self.node.vhosts.get(vhost)
        is_left_out = to_queue and destination.startswith(RESERVED)
        if not source or (is_left_out and known is not None and destination not in known.queues):
            return []
        return [
            Bind(
                vhost=vhost,
                source=source,
                destination=destination,
                to_queue=to_queue,
                routing_key=fields.name("routing_key", ""),
                arguments=fields.table("arguments", {}),
            )
        ]


def default_algorithm(version: object) -> str:
    """The algorithm of hashes that come without its name, by the version of RabbitMQ that exported them."""
    numbers = VERSION.match(version) if isinstance(version, str) else None
    is_old = numbers is not None and tuple(map(int, numbers.groups())) < FIRST_WITH_SHA256
    return RABBIT_MD5 if is_old else RABBIT_SHA256


def queue_arguments(fields: Fields, default_type: str) -> dict[str, Any]:
    """The arguments. The type, which may stand beside them, is among them if it is not the default."""
    arguments = fields.table("arguments", {})
    kind = fields.text("type", default_type)
    if TYPE.argument in arguments or kind == default_type or kind not in QUEUE_TYPES:
        return arguments
    return {**arguments, TYPE.argument: kind}


def what_is(kind: str, row: dict[str, Any]) -> str:
    """An object of the file, in words: `queue 'orders' in vhost '/'`."""
    word = {"policies": "policy", "permissions": "permissions"}.get(kind, kind.removesuffix("s"))
    named = {
        "permissions": "user",
        "topic_permissions": "user",
        "bindings": "source",
    }
    words = [word.replace("_", " "), f"'{row.get(named.get(kind, 'name'), '')}'"]
    if kind == "bindings":
        words.append(f"to '{row.get('destination', '')}'")
    if "vhost" in row:
        words.append(f"in vhost '{row['vhost']}'")
    return " ".join(words)
