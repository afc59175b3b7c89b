"""Profiles: brokers by name, in `~/.config/warren/profiles.toml` (or below `$XDG_CONFIG_HOME`).

default = "local"                       # the profile that is used if none is named

[production]
url = "https://ops@broker.example:15671"
amqp = "amqp://broker.example:5672"     # if it is not where the HTTP API says
vhost = "shop"
ca = "/etc/ssl/broker.pem"
cert = "/etc/ssl/ops.pem"               # if the broker asks for one; `key` names its key if it is elsewhere
password_file = "/run/secrets/ops"      # else WARREN_PASSWORD, or a prompt
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

PROFILES = Path("warren") / "profiles.toml"


class ProfileError(Exception):
    """A profile is missing or wrong; the text names the file."""


@dataclass(frozen=True)
class Profile:
    url: str | None = None
    amqp: str | None = None
    vhost: str | None = None
    ca: str | None = None
    """A file with the certificates that a broker with TLS is checked by; the system's if it is None."""
    cert: str | None = None
    """A file with our own certificate, for a broker that asks for one."""
    key: str | None = None
    """A file with its key; None: it is in the file of the certificate."""
    password_file: str | None = None
    """A file whose first line is the password."""


def profiles_path(environment: Mapping[str, str] = os.environ) -> Path:
    given = environment.get("XDG_CONFIG_HOME")
    return (Path(given) if given else Path.home() / ".config") / PROFILES


def load_profile(name: str | None, path: Path) -> Profile:
    """The profile of this name, or else the default one; without a file and a name, an empty one."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if name is None:
            return Profile()
        raise ProfileError(f"no profile '{name}': there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: {error}") from error
    chosen = name or content.get("default")
    if chosen is None:
        return Profile()
    if not isinstance(content.get(chosen), dict):
        raise ProfileError(f"{path} has no profile '{chosen}'")
    return _profile(content[chosen], f"{path}: [{chosen}]")


def names(path: Path) -> list[str]:
    """The names of all profiles, for completion."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [name for name, value in content.items() if isinstance(value, dict)]


def _profile(content: dict[str, object], place: str) -> Profile:
    known = {field.name for field in fields(Profile)}
    for key, value in content.items():
        if key not in known:
            raise ProfileError(f"{place} has no setting '{key}', only {', '.join(sorted(known))}")
        if not isinstance(value, str):
            raise ProfileError(f"{place} {key} must be a text")
    return Profile(**{key: str(value) for key, value in content.items()})
