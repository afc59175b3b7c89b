"""Policies, limits and shovels in `warren.toml`: commands that make them, or what runs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from warren.amqp.errors import PreconditionFailed
from warren.broker.changes import policy_of
from warren.broker.commands import PutPolicy, SetUserLimits, SetVhostLimits
from warren.broker.limits import UserLimits, VhostLimits, read_limits
from warren.server.config_error import ConfigError

DEFAULT_VHOST = "/"
POLICY_KEYS = {"vhost", "name", "pattern", "apply_to", "priority", "definition"}

L = TypeVar("L", VhostLimits, UserLimits)


@dataclass(frozen=True, kw_only=True)
class StaticShovel:
    """A shovel that runs as long as it stands in the settings. What its definition means is known to the
    service `relays`, which is above this module.
    """

    name: str
    vhost: str = DEFAULT_VHOST
    definition: dict[str, Any] = field(repr=False)  # whose URIs may have passwords


def policies(setting: str, value: object) -> tuple[PutPolicy, ...]:
    return tuple(_policy(setting, entry) for entry in expect_list(setting, value))


def vhost_limits(value: object) -> tuple[SetVhostLimits, ...]:
    """From one table of limits for each vhost, by the vhost's name."""
    limits = expect_table("vhost_limits", value)
    return tuple(
        SetVhostLimits(vhost=vhost, **_limits(f"vhost_limits of '{vhost}'", VhostLimits, table))
        for vhost, table in limits.items()
    )


def user_limits(user: str, value: object) -> SetUserLimits:
    return SetUserLimits(user=user, **_limits(f"limits of user '{user}'", UserLimits, value))


def shovels(setting: str, value: object) -> tuple[StaticShovel, ...]:
    return tuple(_shovel(setting, entry) for entry in expect_list(setting, value))


def _shovel(setting: str, entry: object) -> StaticShovel:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ConfigError(f"{setting}: each shovel needs a name")
    definition = dict(entry)
    name, vhost = definition.pop("name"), definition.pop("vhost", DEFAULT_VHOST)
    if not isinstance(vhost, str):
        raise ConfigError(f"{setting}: '{name}': vhost: expected a string")
    return StaticShovel(name=name, vhost=vhost, definition=definition)


def names(setting: str, value: object) -> tuple[str, ...]:
    """A list of names, or text with commas between them. As in RabbitMQ, the text `none` is for no name."""
    if isinstance(value, str):
        return () if value == "none" else tuple(name for each in value.split(",") if (name := each.strip()))
    found = expect_list(setting, value)
    if not all(isinstance(name, str) for name in found):
        raise ConfigError(f"{setting}: expected a list of names")
    return tuple(found)


def expect_list(name: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{name}: expected a list in the configuration file")
    return value


def expect_table(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: expected a table in the configuration file")
    return value


def expect_known(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    unknown = set(given).difference(known)
    if unknown:
        raise ConfigError(f"{where}: unknown setting {', '.join(sorted(unknown))}")


def _policy(setting: str, entry: object) -> PutPolicy:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ConfigError(f"{setting}: each policy needs a name")
    where = f"{setting}: '{entry['name']}'"
    expect_known(where, entry, POLICY_KEYS)
    for key in ("pattern", "vhost", "apply_to"):
        if not isinstance(entry.get(key, ""), str):
            raise ConfigError(f"{where}: {key}: expected a string")
    operator = setting == "operator_policies"
    command = PutPolicy(
        vhost=entry.get("vhost", DEFAULT_VHOST),
        name=entry["name"],
        pattern=entry.get("pattern", ".*"),
        definition=expect_table(f"{where}: definition", entry.get("definition")),
        priority=entry.get("priority", 0),
        apply_to=entry.get("apply_to", "queues" if operator else "all"),
        operator=operator,
    )
    try:
        policy_of(command)
    except PreconditionFailed as error:
        raise ConfigError(f"{where}: {error}") from error
    return command


def _limits(where: str, kind: type[L], value: object) -> dict[str, int]:
    table = expect_table(where, value)
    names = [field.name for field in fields(kind)]
    expect_known(where, table, names)
    try:
        read_limits(kind, _Given(names, table))
    except PreconditionFailed as error:
        raise ConfigError(f"{where}: {error}") from error
    return table


class _Given:
    """A table's values as attributes; those of `names` that the table lacks are None."""

    def __init__(self, names: list[str], table: dict[str, int]) -> None:
        for name in names:
            setattr(self, name, table.get(name))
