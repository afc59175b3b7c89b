"""Tokens with real clients: as a password over AMQP, renewed on an open connection, and over HTTP."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingConnection

from tests.clients.conftest import WAIT_SECONDS_MAX, serve_until
from tests.support.process import BrokerProcess
from tests.support.tokens import EVERYTHING, Issuer

ISSUER = Issuer()
SETTINGS = """
auth_backends = ["internal", "oauth2"]
[oauth2]
resource_server_id = "warren"
jwks_file = "{path}"
"""


@pytest.fixture(scope="module")
def own_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    if request.config.getoption("--broker"):
        pytest.skip("needs a broker with settings of its own")
    folder = tmp_path_factory.mktemp("tokens")
    settings = folder / "warren.toml"
    settings.write_text(SETTINGS.format(path=ISSUER.write_jwks(folder / "jwks.json")))
    with BrokerProcess(folder / "data", "--config", str(settings)) as process:
        yield process
        process.check_log()


def connect(broker: BrokerProcess, password: str, user: str = "anybody") -> BlockingConnection:
    return BlockingConnection(
        pika.ConnectionParameters(
            broker.address.host,
            broker.address.port,
            credentials=pika.PlainCredentials(user, password),
            blocked_connection_timeout=WAIT_SECONDS_MAX,
        )
    )


def test_token_is_a_password(own_broker: BrokerProcess, name: str) -> None:
    with connect(own_broker, ISSUER.token()) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.basic_publish("", name, b"1", pika.BasicProperties(user_id="me"))
        assert channel.basic_get(name)[2] == b"1"
        channel.queue_delete(name)


def test_passwords_still_do(own_broker: BrokerProcess) -> None:
    with connect(own_broker, "guest", "guest") as connection:
        assert connection.is_open


def test_scopes_bound_what_the_client_may_do(own_broker: BrokerProcess, name: str) -> None:
    with connect(own_broker, ISSUER.token(scope=f"warren.configure:%2F/{name}*")) as connection:
        channel = connection.channel()
        channel.queue_declare(name, auto_delete=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.queue_declare("other")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="ACCESS_REFUSED"):
            connection.channel().basic_get(name)


def test_vhost_without_a_scope_is_closed(own_broker: BrokerProcess) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        connect(own_broker, ISSUER.token(scope="warren.read:other/*"))


@pytest.mark.parametrize("claims", [{"seconds": -10}, {"aud": "other"}])
def test_token_that_does_not_count_is_refused(own_broker: BrokerProcess, claims: dict[str, Any]) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED"):
        connect(own_broker, ISSUER.token(**claims))


def test_connection_is_closed_when_the_token_expires(own_broker: BrokerProcess) -> None:
    connection = connect(own_broker, ISSUER.token(seconds=2))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="credential expired"):
        serve_until(lambda: connection.process_data_events(time_limit=1), lambda: False)


def test_renewed_token_keeps_the_connection_open(own_broker: BrokerProcess, name: str) -> None:
    before, after = ISSUER.token(seconds=2), ISSUER.token(scope=EVERYTHING + " warren.tag:impersonator")
    with connect(own_broker, before) as connection:
        channel = connection.channel()
        channel.queue_declare(name, auto_delete=True)
        connection.update_secret(after, "it expires")
        connection.sleep(3)
        channel.basic_publish("", name, b"1", pika.BasicProperties(user_id="another"))
        assert channel.basic_get(name, auto_ack=True)[2] == b"1"


def ask(broker: BrokerProcess, authorization: str) -> tuple[int, dict[str, object]]:
    request = urllib.request.Request(  # noqa: S310 - it is http
        f"{broker.http_url}/api/whoami", headers={"Authorization": authorization}
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS_MAX) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_token_is_a_bearer_and_a_password_over_http(own_broker: BrokerProcess) -> None:
    token = ISSUER.token(scope="warren.tag:management")
    basic = base64.b64encode(f"any:{token}".encode()).decode()
    for authorization in (f"Bearer {token}", f"bearer {token}", f"Basic {basic}"):
        assert ask(own_broker, authorization) == (200, {"name": "me", "tags": ["management"]})


def test_bearer_without_a_tag_or_that_does_not_count_gets_401(own_broker: BrokerProcess) -> None:
    assert ask(own_broker, f"Bearer {ISSUER.token()}")[1]["reason"] == "Not management user"
    for token in (ISSUER.token(seconds=-10), "guest", ""):
        status, answer = ask(own_broker, f"Bearer {token}")
        assert (status, answer["reason"]) == (401, "Login failed")


def test_no_token_is_in_the_log(own_broker: BrokerProcess) -> None:
    for token in (ISSUER.token(seconds=-10), ISSUER.token(aud="other")):
        ask(own_broker, f"Bearer {token}")
        for part in token.split("."):
            assert part not in own_broker.log()
    assert "authentication failed" in own_broker.log()
