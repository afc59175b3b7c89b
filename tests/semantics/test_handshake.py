"""How a connection begins: header, login, tuning, virtual host, and what the broker says about itself."""

from __future__ import annotations

import pytest

from tests.support.amqp import AmqpClient
from warren.amqp import methods as m
from warren.amqp.table import encode_table

SUPPORTED_HEADER = b"AMQP\0\0\x09\x01"
LOGIN_REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism {}. "
    "For details see the broker logfile."
)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"AMQP\0\1\0\0", id="AMQP 1.0"),
        pytest.param(b"AMQP\0\0\x0a\0", id="AMQP 0-10"),
        pytest.param(b"GET / HT", id="HTTP"),
    ],
)
def test_wrong_protocol_header_is_answered_with_the_supported_one_and_the_end(
    raw: AmqpClient, header: bytes
) -> None:
    raw.send_raw(header)
    assert raw.read_bytes(8) == SUPPORTED_HEADER
    raw.expect_end()


def test_wrong_password_closes_with_403_if_the_client_knows_authentication_failure_close(
    raw: AmqpClient,
) -> None:
    raw.start()
    raw.authenticate(password="wrong", capabilities=("authentication_failure_close",))
    assert raw.expect_close(403).reply_text == LOGIN_REFUSED.format("PLAIN")


def test_wrong_password_ends_the_connection_silently_without_authentication_failure_close(
    raw: AmqpClient,
) -> None:
    raw.start()
    raw.authenticate(password="wrong", capabilities=())
    raw.expect_end()


def test_unknown_user_is_refused_as_a_wrong_password_is(raw: AmqpClient) -> None:
    raw.start()
    raw.authenticate(user="nobody", capabilities=("authentication_failure_close",))
    assert raw.expect_close(403).reply_text == LOGIN_REFUSED.format("PLAIN")


def test_guest_may_log_in_from_loopback(raw: AmqpClient) -> None:
    raw.start()
    raw.authenticate(user="guest", password="guest")
    raw.tune()
    raw.open()


def test_amqplain_logs_in_with_a_table_of_login_and_password(raw: AmqpClient) -> None:
    raw.start()
    table = encode_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
    raw.authenticate(mechanism="AMQPLAIN", response=table)
    raw.tune()
    raw.open()


def test_amqplain_with_a_wrong_password_is_refused(raw: AmqpClient) -> None:
    raw.start()
    table = encode_table({"LOGIN": "guest", "PASSWORD": "wrong"})[4:]
    raw.authenticate(mechanism="AMQPLAIN", response=table)
    assert raw.expect_close(403).reply_text == LOGIN_REFUSED.format("AMQPLAIN")


def test_mechanisms_without_tls_are_plain_and_amqplain(raw: AmqpClient) -> None:
    assert set(raw.start().mechanisms.split()) == {b"PLAIN", b"AMQPLAIN"}


def test_version_in_start_is_0_9_and_the_locale_en_us(raw: AmqpClient) -> None:
    start = raw.start()
    assert (start.version_major, start.version_minor, start.locales) == (0, 9, b"en_US")


@pytest.mark.parametrize("name", ["product", "version", "platform", "cluster_name"])
def test_server_properties_name_the_broker(raw: AmqpClient, name: str) -> None:
    value = raw.start().server_properties[name]
    assert isinstance(value, str)
    assert value


def test_server_properties_list_the_capabilities(raw: AmqpClient) -> None:
    assert raw.start().server_properties["capabilities"] == dict.fromkeys(
        (
            "publisher_confirms",
            "exchange_exchange_bindings",
            "basic.nack",
            "consumer_cancel_notify",
            "connection.blocked",
            "consumer_priorities",
            "authentication_failure_close",
            "per_consumer_qos",
            "direct_reply_to",
        ),
        True,
    )


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("frame_max", 4095, "4095 is lower than the minimum allowed value (4096)"),
        ("frame_max", 131073, "131073 is higher than the maximum allowed value (131072)"),
        ("frame_max", 0, "0 (no limit) is higher than the maximum allowed value (131072)"),
        ("channel_max", 2048, "2048 is higher than the maximum allowed value (2047)"),
        ("channel_max", 0, "0 (no limit) is higher than the maximum allowed value (2047)"),
    ],
)
@pytest.mark.usefixtures("unlike_rabbitmq")
def test_tune_ok_outside_of_what_was_offered_is_530(
    raw: AmqpClient, setting: str, value: int, text: str
) -> None:
    """RabbitMQ has these texts in its log only, and ends the connection without a word."""
    raw.start()
    raw.authenticate()
    raw.tune(**{setting: value})
    assert raw.expect_close(530).reply_text == f"NOT_ALLOWED - negotiated {setting} = {text}"


def test_smallest_frame_max_and_one_channel_are_accepted(raw: AmqpClient) -> None:
    raw.start()
    raw.authenticate()
    raw.tune(frame_max=4096, channel_max=1)
    raw.open()
    raw.channel(1)


def test_unknown_vhost_is_530(raw: AmqpClient) -> None:
    raw.start()
    raw.authenticate()
    raw.tune()
    raw.send_method(0, m.ConnectionOpen(virtual_host="nowhere"))
    close = raw.expect_close(530)
    assert close.reply_text == "NOT_ALLOWED - vhost nowhere not found"
    assert (close.class_id, close.method_id) == m.ConnectionOpen.id


def test_update_secret_is_answered_with_ok(client: AmqpClient) -> None:
    client.send_method(0, m.ConnectionUpdateSecret(new_secret=b"guest", reason="rotation"))
    client.expect(0, m.ConnectionUpdateSecretOk)
