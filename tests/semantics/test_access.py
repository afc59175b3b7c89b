"""What depends on how the broker was set up: users, vhosts, addresses, limits. It is a broker of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.amqp import AmqpClient
from tests.support.frames import HEADER, encode_header
from tests.support.process import Address, BrokerProcess
from warren.amqp import methods as m
from warren.amqp.properties import BasicProperties

MESSAGE_BYTES_MAX = 1000
SETTINGS = f"""
max_message_bytes = {MESSAGE_BYTES_MAX}
vhosts = ["/", "closed"]

[[users]]
name = "guest"
password = "guest"
permissions."/" = {{ configure = ".*", write = ".*", read = ".*" }}

[[users]]
name = "ann"
password = "secret"
permissions."/" = {{ configure = ".*", write = ".*", read = ".*" }}
"""


@pytest.fixture(scope="module")
def own_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    if request.config.getoption("--broker"):
        pytest.skip("needs a broker with settings of its own")
    folder = tmp_path_factory.mktemp("access")
    settings = folder / "warren.toml"
    settings.write_text(SETTINGS)
    with BrokerProcess(folder / "data", "--bind", "0.0.0.0", "--config", str(settings)) as process:
        yield process


@pytest.fixture
def local(own_broker: BrokerProcess) -> Address:
    return Address("127.0.0.1", own_broker.address.port)


@pytest.fixture
def remote(own_broker: BrokerProcess) -> Address:
    """The broker by an address of this machine that is not loopback. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        host = probe.getsockname()[0]
    if host.startswith("127."):
        pytest.skip("this machine has no network")
    return Address(host, own_broker.address.port)


def test_vhost_without_access_to_it_is_530(local: Address) -> None:
    with AmqpClient(local) as client:
        client.start()
        client.authenticate(user="ann", password="secret")
        client.tune()
        client.send_method(0, m.ConnectionOpen(virtual_host="closed"))
        text = client.expect_close(530).reply_text
        assert text == "NOT_ALLOWED - access to vhost 'closed' refused for user 'ann'"


def test_guest_is_refused_from_elsewhere_than_loopback(remote: Address) -> None:
    with AmqpClient(remote) as client:
        client.start()
        client.authenticate()
        assert client.expect_close(403).reply_text.startswith("ACCESS_REFUSED - ")


def test_other_users_may_log_in_from_elsewhere_than_loopback(remote: Address) -> None:
    AmqpClient.connect(remote, user="ann", password="secret").close()


def test_user_id_is_compared_with_the_connections_user(local: Address) -> None:
    with AmqpClient.connect(local, user="ann", password="secret") as client:
        channel = client.channel()
        channel.publish("amq.direct", "key", b"", BasicProperties(user_id="guest"))
        assert channel.expect_close(406).reply_text == (
            "PRECONDITION_FAILED - user_id property set to 'guest' but authenticated user was 'ann'"
        )


def test_largest_message_is_configurable(local: Address) -> None:
    with AmqpClient.connect(local) as client:
        channel = client.channel()
        queue = channel.declare().queue
        channel.publish("", queue, bytes(MESSAGE_BYTES_MAX))
        assert channel.drain(queue) == [bytes(MESSAGE_BYTES_MAX)]
        channel.send(m.BasicPublish(routing_key=queue))
        client.send_frame(HEADER, channel.number, encode_header(MESSAGE_BYTES_MAX + 1))
        assert channel.expect_close(406).reply_text == (
            "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000"
        )


def test_broker_that_stops_closes_its_connections_with_320(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if request.config.getoption("--broker"):
        pytest.skip("needs a broker that it may stop")
    with BrokerProcess(tmp_path_factory.mktemp("stop") / "data") as process:
        client = AmqpClient.connect(process.address)
        process.process.terminate()
        assert client.expect_close(320).reply_text.startswith("CONNECTION_FORCED - ")
