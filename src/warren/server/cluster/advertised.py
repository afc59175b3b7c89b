"""Where others find a node, as a setting says it: `host`, or `host:port`."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from warren.server.address import is_port, split_address
from warren.server.config_error import ConfigError


class Advertised(NamedTuple):
    host: str
    port: str  # empty: the one where the node listens


def advertised(setting: str, text: str) -> Advertised:
    host, port = split_address(text)
    if not host or is_wildcard(host) or (port and (not is_port(port) or not int(port))):
        raise ConfigError(f"{setting} = {text!r}: expected 'host' or 'host:port', by which others find it")
    return Advertised(host, port)


def is_wildcard(host: str) -> bool:
    """Whether it stands for all addresses of a machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return not host
