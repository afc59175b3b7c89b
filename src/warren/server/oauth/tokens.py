"""The authenticator `oauth2`: JSON Web Tokens (RFC 7519), as passwords over AMQP and bearers over HTTP.

As in RabbitMQ's plugin, the token says who the user is; the user name that an AMQP client sends beside it is
not looked at. This module needs the extra `warrenmq[oauth]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jwt
import structlog
from jwt import PyJWK

from warren.broker.login import Credentials, Identity, Outcome, Refusal
from warren.server.oauth.keys import KeyCache, keys_in_file, loader_of
from warren.server.oauth.scopes import user_with
from warren.server.oauth.settings import OAuth2Settings

TOKEN_BYTES_MAX = 64 * 1024
LEEWAY_SECONDS = 5  # for a token that is not valid yet: clocks differ
USERNAME_CLAIMS = ("sub", "client_id")
NOBODY = "unknown"
KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP", "HS": "oct"}
"""The kind of key for each kind of signature. With a key of another kind, a token could be forged."""


class OAuth2:
    def __init__(
        self,
        settings: OAuth2Settings,
        log: structlog.stdlib.BoundLogger,
        now: Callable[[], float],
        time_ms: Callable[[], int],
    ) -> None:
        settings.check()
        self.settings = settings
        self.keys = KeyCache(loader_of(settings), settings.default_key, log, now)
        self.time_ms = time_ms  # the time of day

    async def start(self) -> None:
        """A file must have keys now; a URL that does not answer keeps nobody from starting."""
        path = self.settings.jwks_file
        await self.keys.start(await keys_in_file(path) if path else None)

    async def stop(self) -> None:
        await self.keys.stop()

    async def authenticate(self, credentials: Credentials) -> Outcome:
        token = credentials.secret
        if token is None or len(token) > TOKEN_BYTES_MAX:
            return Refusal("no token")
        try:
            header = jwt.get_unverified_header(token)
            key = await self.keys.find(header.get("kid"))
            if key is None:
                return Refusal("the token is signed by a key that is not known")
            claims = self._claims(token, key, str(header.get("alg")))
            return self._identity(claims)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            return Refusal(f"not a valid token: {error}")

    def _claims(self, token: bytes, key: PyJWK, algorithm: str) -> dict[str, Any]:
        if algorithm not in self.settings.algorithms or KEY_TYPES.get(algorithm[:2]) != key.key_type:
            raise jwt.InvalidAlgorithmError("its algorithm is not allowed")
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            issuer=self.settings.issuer or None,
            leeway=LEEWAY_SECONDS,
            options={
                "verify_aud": False,
                "verify_iat": False,
                "verify_exp": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
        return claims

    def _identity(self, claims: dict[str, Any]) -> Outcome:
        settings = self.settings
        if settings.verify_aud and settings.resource_server_id not in texts_in(claims.get("aud")):
            return Refusal("the token is for another audience")
        expires_ms = expiry_in(claims)
        if expires_ms is not None and expires_ms <= self.time_ms():
            return Refusal("the token has expired")
        return Identity(user_with(self._name(claims), self._scopes(claims)), expires_ms)

    def _name(self, claims: dict[str, Any]) -> str:
        for claim in (*self.settings.preferred_username_claims, *USERNAME_CLAIMS):
            name = claims.get(claim)
            if isinstance(name, str) and name:
                return name
        return NOBODY

    def _scopes(self, claims: dict[str, Any]) -> Iterable[str]:
        """The scopes that are meant for us, without their prefix."""
        prefix = self.settings.prefix
        for claim in ("scope", *self.settings.additional_scopes_key):
            for text in texts_in(claims.get(claim)):
                for scope in self.settings.scope_aliases.get(text, (text,)):
                    if scope.startswith(prefix):
                        yield scope.removeprefix(prefix)


def expiry_in(claims: dict[str, Any]) -> int | None:
    """The time of day at which the token ends, in milliseconds; None if it does not."""
    expires = claims.get("exp")
    if expires is None:
        return None
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        raise TypeError("exp is not a number")
    return int(expires * 1000)


def texts_in(claim: object) -> list[str]:
    """A claim that is a list of texts, or one text with spaces between them."""
    if isinstance(claim, str):
        return claim.split()
    if isinstance(claim, list):
        return [text for text in claim if isinstance(text, str)]
    return []
