"""The table `[oauth2]` of the configuration. The names are those of RabbitMQ's `auth_oauth2.…` settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from warren.server.config_definitions import expect_known, expect_list, expect_table
from warren.server.config_error import ConfigError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SYMMETRIC = ("HS256", "HS384", "HS512")
SCHEMES = ("https://", "http://")


@dataclass(frozen=True, kw_only=True)
class OAuth2Settings:
    resource_server_id: str = ""
    """The name of this broker, or of its cluster, as tokens have it in `aud`."""
    issuer: str = ""
    """The URL of the server that gives tokens. Tokens must name it in `iss`. Without `jwks_url` and
    `jwks_file`, the server is asked where its keys are, by OpenID Connect Discovery.
    """
    jwks_url: str = ""
    """Where the keys are, by which signatures are checked."""
    jwks_file: str = ""
    """A file with these keys, instead."""
    default_key: str = ""
    """The id of the key for tokens that name none; without it, the only key there is."""
    algorithms: tuple[str, ...] = ALGORITHMS
    """Which signatures count. HS256 and the like, only with keys from a file."""
    verify_aud: bool = True
    """Whether the token must name `resource_server_id` in `aud`."""
    scope_prefix: str | None = None
    """Scopes must begin with this; None for `resource_server_id` and a dot."""
    additional_scopes_key: tuple[str, ...] = ()
    """Claims that have scopes, besides `scope`."""
    preferred_username_claims: tuple[str, ...] = ()
    """Claims that have the name of the user, the first that is there; after them `sub` and `client_id`."""
    scope_aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Scopes that stand for others, with their prefix."""

    @property
    def prefix(self) -> str:
        return f"{self.resource_server_id}." if self.scope_prefix is None else self.scope_prefix

    def check(self) -> None:
        """Raise unless tokens can be checked with these settings."""
        if not self.resource_server_id:
            raise ConfigError("oauth2: resource_server_id is missing")
        if not (self.issuer or self.jwks_url or self.jwks_file):
            raise ConfigError("oauth2: one of jwks_file, jwks_url and issuer is needed for the keys")
        if self.jwks_url and self.jwks_file:
            raise ConfigError("oauth2: expected jwks_url or jwks_file, not both")
        for name in ("issuer", "jwks_url"):
            url = getattr(self, name)
            if url and not url.startswith(SCHEMES):
                raise ConfigError(f"oauth2: {name}: expected https://… or http://…")
        unknown = set(self.algorithms).difference(ALGORITHMS, SYMMETRIC)
        if unknown or not self.algorithms:
            known = ", ".join((*ALGORITHMS, *SYMMETRIC))
            raise ConfigError(f"oauth2: algorithms: expected some of {known}")


def oauth2_settings(name: str, value: object) -> OAuth2Settings:
    table = expect_table(name, value)
    expect_known(name, table, [each.name for each in fields(OAuth2Settings)])
    return OAuth2Settings(**{key: _setting(key, given) for key, given in table.items()})


def _setting(key: str, value: object) -> Any:
    where = f"oauth2: {key}"
    if key == "verify_aud":
        return _expect(where, value, bool)
    if key in {"algorithms", "preferred_username_claims", "additional_scopes_key"}:
        return _texts(where, value)
    if key == "scope_aliases":
        return {name: _texts(where, given) for name, given in expect_table(where, value).items()}
    return _expect(where, value, str)


def _expect(where: str, value: object, kind: type) -> object:
    if not isinstance(value, kind):
        raise ConfigError(f"{where}: expected {'a string' if kind is str else 'true or false'}")
    return value


def _texts(where: str, value: object) -> tuple[str, ...]:
    """A list of strings, or one string with spaces between them."""
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(str(_expect(where, each, str)) for each in expect_list(where, value))
