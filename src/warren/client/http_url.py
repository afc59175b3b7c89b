"""URLs of a broker's HTTP API: `http://user:password@host:port`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import unquote

from warren.client.uri import port_in, split_uri

PORTS = {"http": 15672, "https": 15671}


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """The parts of the URL of an HTTP API; user and password are None if they are left out."""

    scheme: str
    host: str
    port: int
    path: str
    """In front of `/api`, for an API behind a proxy; usually empty."""
    user: str | None
    password: str | None

    @property
    def address(self) -> str:
        """The URL without user and password, for messages to people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    def __repr__(self) -> str:
        return f"<HttpUrl {self.address} user={self.user}>"

    def with_login(self, user: str, password: str) -> HttpUrl:
        return replace(self, user=user, password=password)


def parse_http_url(text: str) -> HttpUrl:
    """Read a URL; raise `ValueError` without the URL's password in its text."""
    parts = split_uri(text)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("not a URL such as http://user:password@host:15672")
    return HttpUrl(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port_in(parts) or PORTS[parts.scheme],
        path=parts.path.rstrip("/").removesuffix("/api"),
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
    )
