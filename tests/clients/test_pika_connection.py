"""pika's connections: how they open, stay open, and carry many channels."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

from tests.clients.conftest import CAPABILITIES, LARGE_BODY, WAIT_SECONDS_MAX, serve_until
from tests.clients.pika_client import Inbox, connect, drain, publish
from tests.support.process import Address


@pytest.fixture
def connection(broker: Address) -> Iterator[BlockingConnection]:
    with connect(broker) as connection:
        yield connection


def test_server_properties_list_the_capabilities_clients_look_for(
    connection: BlockingConnection,
) -> None:
    assert connection._impl.server_properties["capabilities"] == CAPABILITIES


def test_wrong_password_is_told_as_an_authentication_error(broker: Address) -> None:
    with pytest.raises(ProbableAuthenticationError, match=r"\(403\) 'ACCESS_REFUSED"):
        connect(broker, credentials=pika.PlainCredentials("guest", "wrong"))


def test_unknown_vhost_is_told_as_access_denied(broker: Address, name: str) -> None:
    with pytest.raises(ProbableAccessDeniedError, match=r"\(530\) 'NOT_ALLOWED"):
        connect(broker, virtual_host=name)


def test_heartbeat_asked_for_by_the_client_is_sent_by_the_broker(broker: Address) -> None:
    with connect(broker, heartbeat=1) as connection:
        checker = connection._impl._heartbeat_checker
        serve_until(
            lambda: connection.process_data_events(time_limit=0.1),
            lambda: checker._heartbeat_frames_received >= 2,
        )
        assert connection.is_open


def test_heartbeats_can_be_turned_off(broker: Address) -> None:
    with connect(broker, heartbeat=0) as connection:
        assert connection._impl._heartbeat_checker is None
        assert connection.channel().is_open


def test_secret_can_be_updated_on_a_connection_in_use(connection: BlockingConnection) -> None:
    connection.update_secret("guest", "rotated")
    assert connection.channel().is_open


def test_connection_that_listens_for_blocking_is_not_blocked_without_reason(
    broker: Address, name: str
) -> None:
    blocked: list[object] = []
    with connect(broker, blocked_connection_timeout=WAIT_SECONDS_MAX) as connection:
        connection.add_on_connection_blocked_callback(lambda *event: blocked.append(event))
        connection.add_on_connection_unblocked_callback(lambda *event: blocked.append(event))
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        channel.confirm_delivery()
        publish(channel, name, b"flows")
        assert drain(channel, name) == [(b"flows", False)]
    assert blocked == []


def test_each_of_many_channels_gets_its_own_deliveries(connection: BlockingConnection) -> None:
    inboxes = {}
    for _ in range(100):
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        inboxes[queue] = Inbox(channel, queue, auto_ack=True)
    publisher = connection.channel()
    for queue in inboxes:
        publish(publisher, queue, queue.encode())
    for queue, inbox in inboxes.items():
        inbox.wait_for(1)
        assert inbox.bodies == [queue.encode()]


def test_channel_number_can_be_used_again_after_close(connection: BlockingConnection, name: str) -> None:
    for _ in range(3):
        channel = connection.channel(channel_number=7)
        channel.queue_declare(name, exclusive=True)
        channel.close()
    assert connection.is_open


def test_body_crosses_between_connections_of_different_frame_sizes(broker: Address, name: str) -> None:
    with connect(broker, frame_max=4096) as small, connect(broker, frame_max=131_072) as large:
        receiver = small.channel()
        receiver.queue_declare(name, auto_delete=True)
        inbox = Inbox(receiver, name, auto_ack=True)
        publish(large.channel(), name, LARGE_BODY)
        publish(receiver, name, LARGE_BODY)
        inbox.wait_for(2)
        assert inbox.bodies == [LARGE_BODY, LARGE_BODY]


def publish_and_wait(channel: BlockingChannel, exchange: str) -> None:
    """The close may come while this still sends the body, or instead of an answer to the request."""
    channel.basic_publish(exchange, "", b"x" * 300_000)
    channel.queue_declare("", exclusive=True)


def test_publish_to_a_missing_exchange_closes_the_channel_and_not_the_connection(
    connection: BlockingConnection, name: str
) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        publish_and_wait(connection.channel(), name)
    assert closed.value.reply_code == 404
    assert closed.value.reply_text == f"NOT_FOUND - no exchange '{name}' in vhost '/'"
    assert connection.channel().queue_declare("", exclusive=True).method.message_count == 0
