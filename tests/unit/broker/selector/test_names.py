from __future__ import annotations

import pytest

from tests.unit.broker.selector.truth import Truth, truth
from warren.amqp.properties import BasicProperties

PROPERTIES = BasicProperties(
    content_type="text/plain",
    content_encoding="gzip",
    delivery_mode=2,
    priority=5,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    user_id="u",
    app_id="a",
    cluster_id="k",
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content_type", "'text/plain'"),
        ("content_encoding", "'gzip'"),
        ("delivery_mode", "2"),
        ("priority", "5"),
        ("correlation_id", "'c'"),
        ("reply_to", "'r'"),
        ("expiration", "60000"),
        ("message_id", "'m'"),
        ("timestamp", "1700000000"),
        ("type", "'t'"),
        ("user_id", "'u'"),
        ("app_id", "'a'"),
        ("cluster_id", "'k'"),
    ],
)
def test_property_has_its_amqp_name_with_either_dash(name: str, value: str) -> None:
    for spelling in (
        name,
        name.replace("_", "-"),
        f'"{name}"',
        f"amqp.{name}",
        f"amqp.{name.replace('_', '-')}",
    ):
        assert truth(f"{spelling} = {value}", PROPERTIES) is True
        assert truth(f"{spelling} IS NULL", BasicProperties()) is True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JMSPriority", "5"),
        ("JMSCorrelationID", "'c'"),
        ("JMSMessageID", "'m'"),
        ("JMSTimestamp", "1700000000"),
        ("JMSType", "'t'"),
        ("JMSDeliveryMode", "'PERSISTENT'"),
    ],
)
def test_property_has_its_jms_name(name: str, value: str) -> None:
    assert truth(f"{name} = {value}", PROPERTIES) is True


@pytest.mark.parametrize(
    ("mode", "expected"), [(2, "PERSISTENT"), (1, "NON_PERSISTENT"), (None, "NON_PERSISTENT")]
)
def test_jms_delivery_mode_is_what_the_broker_takes_it_for(mode: int | None, expected: str) -> None:
    assert truth(f"JMSDeliveryMode = '{expected}'", BasicProperties(delivery_mode=mode)) is True


@pytest.mark.parametrize("name", ["priority", "JMSPriority"])
def test_header_goes_before_the_property_of_its_name(name: str) -> None:
    properties = BasicProperties(priority=5, headers={name: 1})
    assert truth(f"{name} = 1 AND amqp.priority = 5", properties) is True


def test_header_without_a_value_goes_before_the_property_too() -> None:
    assert truth("priority IS NULL", BasicProperties(priority=5, headers={"priority": None})) is True


def test_header_spelled_otherwise_does_not_hide_the_property() -> None:
    properties = BasicProperties(content_type="p", headers={"content-type": "h"})
    assert truth("content_type = 'p' AND \"content-type\" = 'h'", properties) is True


def test_property_with_the_prefix_is_never_a_header() -> None:
    assert truth("amqp.priority IS NULL", BasicProperties(headers={"amqp.priority": 1})) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [("expiration > 9999", True), ("expiration = '60000'", None), ("expiration + 0 = 60000", True)],
)
def test_expiration_is_a_number(text: str, expected: Truth) -> None:
    assert truth(text, PROPERTIES) is expected


def test_expiration_that_is_no_number_stays_a_string() -> None:
    for value in ("soon", "-1", "1.5", "", "²", "٣"):
        assert truth(f"expiration = '{value}'", BasicProperties(expiration=value)) is True


def test_header_called_expiration_is_as_it_was_sent() -> None:
    assert truth("expiration = '5'", BasicProperties(headers={"expiration": "5"})) is True
