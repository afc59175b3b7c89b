"""Addresses to listen on, as settings name them: `127.0.0.1:5672`, `[::1]:5672`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warren.server.config_error import ConfigError

PORT_MAX = 65_535
LISTENER_KEYS = {"address", "proxy_protocol"}


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int  # 0: the kernel chooses one
    proxy_protocol: bool | None = None  # None: as the setting for all listeners says

    def is_proxied(self, otherwise: bool) -> bool:
        """Whether clients come through a proxy; `otherwise` is the setting for all listeners."""
        return otherwise if self.proxy_protocol is None else self.proxy_protocol

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def addresses(setting: str, value: object) -> tuple[Address, ...]:
    """From a list of texts or tables, or one text with commas, as in the environment."""
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, Iterable) or isinstance(entries, dict):
        raise ConfigError(f"{setting} = {value!r}: expected a list of addresses, such as '127.0.0.1:5672'")
    return tuple(_address(setting, entry) for entry in entries)


def _address(setting: str, entry: object) -> Address:
    if isinstance(entry, Address):
        return entry
    if not isinstance(entry, dict):
        return Address(*_host_and_port(setting, entry))
    unknown, proxied = entry.keys() - LISTENER_KEYS, entry.get("proxy_protocol")
    if unknown:
        raise ConfigError(f"{setting}: unknown setting {', '.join(sorted(unknown))}")
    if proxied is not None and not isinstance(proxied, bool):
        raise ConfigError(f"{setting}: proxy_protocol = {proxied!r}: expected true or false")
    return Address(*_host_and_port(setting, entry.get("address")), proxied)


def address_of(setting: str, text: object) -> Address:
    """The one address that a setting names."""
    return Address(*_host_and_port(setting, text))


def split_address(text: str) -> tuple[str, str]:
    """The host, without brackets, and the port; that is empty if none is named."""
    whole = text.strip()
    host, colon, port = whole.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):  # the last group of an IPv6 address is no port
        host, port = whole, ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def is_port(text: str) -> bool:
    return text.isdecimal() and int(text) <= PORT_MAX


def _host_and_port(setting: str, text: object) -> tuple[str, int]:
    host, port = split_address(text) if isinstance(text, str) else ("", "")
    if not host or not is_port(port):
        raise ConfigError(f"{setting}: {text!r}: expected 'host:port', or '[address]:port' for IPv6")
    return host, int(port)
