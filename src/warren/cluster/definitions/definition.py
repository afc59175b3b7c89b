"""A definition in etcd: one key, whose value is the command that makes it.

    queue/%2F/orders                  {"declare_queue": {"vhost": "/", "name": "orders", "durable": true},
                                       "on": [5], "place": 0, "home": {"node": "a"}}
    binding/%2F/amq.topic/1/orders/#/-  {"bind": {…}, "on": [9]}

`on` has the create_revisions of what the definition hangs on, in the order of `needs_of`. If one of them is
not there any more, or was made anew since, the definition is dead: all nodes ignore it, wherever they are.
So what hangs on something needs not be deleted with it. For permissions, 0 stands for a vhost that was not
there when they were granted.

`place` numbers the definitions that one transaction makes, which all have its revision. `home` is the node
where a queue lives, or to which something belongs that goes when it is not used any more; with `run`, the
definition ends when that run of the node ends, and with `client` when that connection does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from warren.amqp.table import encode_table
from warren.broker import commands
from warren.broker.commands import Command
from warren.broker.parameters import Json
from warren.broker.vhost_metadata import NO_METADATA
from warren.storage import definition_keys as keys
from warren.storage.command_text import command_from_json, command_to_json
from warren.storage.definition_keys import REPLAY_ORDER, Key
from warren.storage.table_text import expect

LAST = "last"  # the key that every change puts, so that changes are counted
PLACES_MAX = 128  # in one transaction, which is etcd's limit as well
NO_ARGUMENTS = "-"
PATHS_CACHED_MAX = 10_000
ORDER = {kind: number for number, kind in enumerate(REPLAY_ORDER)}  # everything comes after what it hangs on


class Home(NamedTuple):
    """Where a definition belongs."""

    node: str  # its name
    run: str = ""  # the run of that node with which it ends, if it does
    client: int = 0  # the connection with which it ends, if it does


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    command: Command  # that makes it
    on: tuple[int, ...] = ()  # the create_revisions of what it hangs on
    place: int = 0  # among the definitions of its transaction
    home: Home | None = None  # where it belongs, if that is one node
    shard: int | None = None  # of a queue, if it is in one

    def text(self) -> bytes:
        content = command_to_json(self.command)
        if self.on:
            content["on"] = list(self.on)
        if self.place:
            content["place"] = self.place
        if self.home is not None:
            content["home"] = {name: value for name, value in self.home._asdict().items() if value}
        if self.shard is not None:
            content["shard"] = self.shard
        return json.dumps(content, separators=(",", ":")).encode()


def read_definition(text: bytes) -> Definition:
    """ValueError if it is not one that is known here."""
    content: Json = json.loads(text)
    fields = dict(expect(dict, content))
    on = tuple(expect(int, each) for each in expect(list, fields.pop("on", [])))
    place = expect(int, fields.pop("place", 0))
    home = fields.pop("home", None)
    shard = fields.pop("shard", None)
    return Definition(
        command=command_from_json(fields),
        on=on,
        place=place,
        home=None if home is None else _read_home(home),
        shard=None if shard is None else expect(int, shard),
    )


def _read_home(content: Json) -> Home:
    fields = expect(dict, content)
    return Home(
        expect(str, fields["node"]), expect(str, fields.get("run", "")), expect(int, fields.get("client", 0))
    )


def says_the_same(one: Command, other: Command) -> bool:
    """Whether two commands are equal, the types of all their values included: 1 is not true."""
    return one is other or json.dumps(command_to_json(one)) == json.dumps(command_to_json(other))


def queue_number(create_revision: int, place: int) -> int:
    """A number that no other queue of the cluster has, or will have."""
    return create_revision * PLACES_MAX + place


@lru_cache(PATHS_CACHED_MAX)
def path_of(key: Key) -> str:
    """The name of a definition's key in etcd, behind the prefix of all definitions."""
    kind = str(key[-1]).replace(" ", "-")
    return "/".join([kind, *map(_part, key[:-1])])


def _part(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, bytes):  # a binding's arguments, which may be long
        return NO_ARGUMENTS if value == encode_table({}) else hashlib.sha256(value).hexdigest()
    return quote(str(value), safe="#*.", errors="surrogateescape")


def needs_of(key: Key) -> tuple[Key, ...]:
    """What a definition hangs on. Permissions end with their vhost, too, if it was there before them."""
    if isinstance(key, keys.PermissionsKey | keys.TopicPermissionsKey):
        return (*key.needs, keys.VhostKey(key.vhost))
    return key.needs


def may_be_absent(need: Key, of: Key) -> bool:
    """Whether a definition can be made before this, which it hangs on."""
    return isinstance(need, keys.VhostKey) and isinstance(of, keys.PermissionsKey | keys.TopicPermissionsKey)


def removal_of(command: Command) -> Command:
    """The command that removes what this one makes, or puts it back to what it is by default."""
    return _REMOVALS[type(command)](command)


def _unbind(command: Any) -> Command:
    return commands.Unbind(
        vhost=command.vhost,
        source=command.source,
        destination=command.destination,
        to_queue=command.to_queue,
        routing_key=command.routing_key,
        arguments=command.arguments,
    )


_REMOVALS: dict[type[Command], Callable[[Any], Command]] = {
    commands.AddVhost: lambda c: commands.DeleteVhost(name=c.name),
    commands.SetVhostLimits: lambda c: commands.SetVhostLimits(vhost=c.vhost),
    commands.SetVhostMetadata: lambda c: commands.SetVhostMetadata(vhost=c.vhost, metadata=NO_METADATA),
    commands.SetParameter: lambda c: commands.ClearParameter(
        vhost=c.vhost, component=c.component, name=c.name
    ),
    commands.SetGlobalParameter: lambda c: commands.ClearGlobalParameter(name=c.name),
    commands.PutPolicy: lambda c: commands.DeletePolicy(vhost=c.vhost, name=c.name, operator=c.operator),
    commands.PutUser: lambda c: commands.DeleteUser(name=c.name),
    commands.SetUserLimits: lambda c: commands.SetUserLimits(user=c.user),
    commands.SetPermissions: lambda c: commands.ClearPermissions(user=c.user, vhost=c.vhost),
    commands.SetTopicPermissions: lambda c: commands.ClearTopicPermissions(
        user=c.user, vhost=c.vhost, exchange=c.exchange
    ),
    commands.DeclareExchange: lambda c: commands.DeleteExchange(vhost=c.vhost, name=c.name),
    commands.DeclareQueue: lambda c: commands.DeleteQueue(vhost=c.vhost, name=c.name),
    commands.PauseQueue: lambda c: commands.ResumeQueue(vhost=c.vhost, name=c.name),
    commands.Bind: _unbind,
}
