from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.support.tokens import Issuer
from warren.broker.access import Permission
from warren.broker.login import Credentials, Identity, Outcome, Refusal
from warren.server.config_error import ConfigError
from warren.server.log import get_logger
from warren.server.oauth.settings import OAuth2Settings
from warren.server.oauth.tokens import OAuth2

ISSUER = Issuer()
SECRET = b"a secret that both sides know, 32 bytes or more"
Make = Callable[..., Awaitable[OAuth2]]


def time_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes authenticators with the keys of `ISSUER`, and further settings."""
    made: list[OAuth2] = []

    async def start(jwks: str | None = None, **settings: Any) -> OAuth2:
        path = tmp_path / "jwks.json"
        path.write_text(jwks or ISSUER.jwks())
        given = {"resource_server_id": "warren", "jwks_file": str(path)} | settings
        oauth = OAuth2(OAuth2Settings(**given), get_logger(), time.monotonic, time_ms)
        await oauth.start()
        made.append(oauth)
        return oauth

    yield start
    for oauth in made:
        await oauth.stop()


async def log_in(oauth: OAuth2, token: str | bytes | None) -> Outcome:
    secret = token.encode() if isinstance(token, str) else token
    return await oauth.authenticate(
        Credentials(
            protocol="amqp091",
            mechanism="PLAIN",
            user="any",
            secret=secret,
            address="a",
            is_loopback=True,
            source="test",
        )
    )


async def identity(oauth: OAuth2, token: str) -> Identity:
    outcome = await log_in(oauth, token)
    assert isinstance(outcome, Identity), outcome
    return outcome


async def refusal(oauth: OAuth2, token: str | bytes | None) -> str:
    outcome = await log_in(oauth, token)
    assert isinstance(outcome, Refusal)
    return outcome.reason


async def test_token_becomes_a_user_with_its_scopes(make: Make) -> None:
    found = await identity(
        await make(), ISSUER.token(scope="warren.read:*/* warren.tag:monitoring other.read:x/y")
    )
    assert found.user.name == "me"
    assert found.user.tags == {"monitoring"}
    assert found.user.allows(Permission.READ, "/", "q")
    assert not found.user.allows(Permission.WRITE, "/", "q")
    assert found.expires_ms is not None
    assert abs(found.expires_ms - time_ms() - 600_000) < 60_000


async def test_token_without_an_end_does_not_expire(make: Make) -> None:
    assert (await identity(await make(), ISSUER.token(seconds=None))).expires_ms is None


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": 1}, "another audience"),
        ({"seconds": -1}, "expired"),
        ({"seconds": None, "exp": "soon"}, "not a valid token"),
        ({"seconds": None, "exp": True}, "not a valid token"),
        ({"seconds": None, "exp": float("inf")}, "not a valid token"),
        ({"nbf": 32503680000}, "not a valid token"),
    ],
)
async def test_token_that_is_not_for_us_or_not_now_is_refused(
    make: Make, claims: dict[str, Any], expected: str
) -> None:
    assert expected in await refusal(await make(), ISSUER.token(**claims))


@pytest.mark.parametrize("aud", ["warren", "a warren b", ["a", "warren"]])
async def test_audience_may_be_one_of_several(make: Make, aud: object) -> None:
    await identity(await make(), ISSUER.token(aud=aud))


async def test_audience_need_not_be_verified(make: Make) -> None:
    await identity(await make(verify_aud=False), ISSUER.token(aud="other"))


@pytest.mark.parametrize("secret", [None, b"", b"guest", b"a.b.c", b"\xff\xfe", b"." * 70_000])
async def test_what_is_no_token_is_refused(make: Make, secret: bytes | None) -> None:
    assert await refusal(await make(), secret)


async def test_token_of_another_key_is_refused(make: Make) -> None:
    oauth = await make()
    assert "signature" in (await refusal(oauth, Issuer("one").token())).lower()
    assert "not known" in await refusal(oauth, Issuer("two").token())


def forged(algorithm: str, claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps({"alg": algorithm, "kid": "one"}).encode(), json.dumps(claims).encode(), signature]
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts).decode()


async def test_token_without_a_signature_is_refused(make: Make) -> None:
    assert "algorithm" in await refusal(await make(), forged("none", {"sub": "me", "aud": "warren"}))


async def test_public_key_is_no_secret_to_sign_with(make: Make) -> None:
    oauth = await make(algorithms=("ES256", "HS256"))
    assert "algorithm" in await refusal(oauth, forged("HS256", {"sub": "me", "aud": "warren"}, b"x" * 32))


async def test_only_the_algorithms_that_are_set_count(make: Make) -> None:
    assert "algorithm" in await refusal(await make(algorithms=("RS256",)), ISSUER.token())
    rsa = Issuer("rsa", "RS256")
    await identity(await make(rsa.jwks(), algorithms=("RS256",)), rsa.token())


async def test_file_may_have_a_key_that_both_sides_know(make: Make) -> None:
    key = {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(SECRET).decode().rstrip("=")}
    token = jwt.encode({"sub": "me", "aud": "warren"}, SECRET, "HS256", headers={"kid": "shared"})
    jwks = json.dumps({"keys": [key]})
    assert "algorithm" in await refusal(await make(jwks), token)
    await identity(await make(jwks, algorithms=("HS256",)), token)


async def test_token_that_names_no_key_takes_the_only_one_or_the_default(make: Make) -> None:
    nameless = ISSUER.token(names_key=False)
    await identity(await make(), nameless)
    both = json.dumps({"keys": [Issuer("two").jwk(), ISSUER.jwk()]})
    assert "not known" in await refusal(await make(both), nameless)
    await identity(await make(both, default_key="one"), nameless)


async def test_issuer_must_be_the_one_that_is_set(make: Make) -> None:
    oauth = await make(issuer="https://issuer.example")
    await identity(oauth, ISSUER.token(iss="https://issuer.example"))
    for iss in ("https://other.example", None):
        assert "not a valid token" in await refusal(oauth, ISSUER.token(iss=iss))


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"user_name": "first", "sub": "second"}, "first"),
        ({"sub": "second", "client_id": "third"}, "second"),
        ({"sub": None, "client_id": "third"}, "third"),
        ({"sub": None}, "unknown"),
        ({"user_name": 7, "sub": "second"}, "second"),
    ],
)
async def test_name_comes_from_the_first_claim_that_has_one(
    make: Make, claims: dict[str, Any], expected: str
) -> None:
    oauth = await make(preferred_username_claims=("user_name",))
    assert (await identity(oauth, ISSUER.token(**claims))).user.name == expected


async def test_aliases_stand_for_scopes(make: Make) -> None:
    oauth = await make(scope_aliases={"admin": ("warren.tag:administrator", "warren.read:*/*", "x.tag:no")})
    found = await identity(oauth, ISSUER.token(scope=["admin", "admin2"]))
    assert found.user.tags == {"administrator"}
    assert found.user.allows(Permission.READ, "/", "q")


async def test_prefix_and_further_claims_for_scopes_can_be_set(make: Make) -> None:
    oauth = await make(scope_prefix="", additional_scopes_key=("roles",))
    found = await identity(oauth, ISSUER.token(scope="read:v/q", roles=["tag:management", 7]))
    assert found.user.may_enter("v")
    assert found.user.tags == {"management"}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": 1}', '{"keys": []}', '{"keys": [{"kty": "new"}, 1]}']
)
async def test_file_without_keys_keeps_the_broker_from_starting(make: Make, text: str) -> None:
    with pytest.raises(ConfigError, match="jwks_file"):
        await make(text or " ")


async def test_file_that_is_not_there_keeps_the_broker_from_starting(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        await make(jwks_file=str(tmp_path / "none"))
