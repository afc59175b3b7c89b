"""Node's amqplib: the scenarios in node/*.js, each run by a `node` of its own that prints what it saw."""

from __future__ import annotations

import pytest

from tests.clients.conftest import CAPABILITIES
from tests.clients.node_client import Scenario, scenarios
from tests.support.process import Address


@pytest.fixture
def scenario(broker: Address, name: str) -> Scenario:
    return scenarios(broker, name)


def test_server_properties_list_the_capabilities_clients_look_for(scenario: Scenario) -> None:
    assert scenario("connection", "serverProperties")["capabilities"] == CAPABILITIES


def test_heartbeat_asked_for_by_the_client_is_sent_by_the_broker(scenario: Scenario) -> None:
    assert scenario("connection", "heartbeat") == {"agreed": 1, "heard": 2}


def test_secret_can_be_updated_on_a_connection_in_use(scenario: Scenario) -> None:
    assert scenario("connection", "updateSecret") == 0


def test_each_of_many_channels_gets_its_own_deliveries(scenario: Scenario) -> None:
    assert scenario("connection", "channels") == [[str(number)] for number in range(50)]


def test_delivery_carries_its_fields(scenario: Scenario, name: str) -> None:
    assert scenario("consuming", "delivery") == {
        "body": "hello",
        "fields": {
            "consumerTag": "mine",
            "deliveryTag": 1,
            "redelivered": False,
            "exchange": "",
            "routingKey": name,
        },
    }


def test_requeued_message_comes_back_redelivered(scenario: Scenario) -> None:
    assert scenario("consuming", "requeue") == [["again", False], ["again", True]]


def test_closing_a_channel_requeues_only_what_was_not_settled(scenario: Scenario) -> None:
    assert scenario("consuming", "acks") == ["4", "5"]


def test_prefetch_limits_what_a_consumer_holds(scenario: Scenario) -> None:
    assert scenario("consuming", "prefetch") == {"ready": [3, 2], "bodies": ["1", "2", "3"]}


def test_consumer_of_higher_priority_is_served_first(scenario: Scenario) -> None:
    assert scenario("consuming", "priority") == {"high": ["1", "2", "3"], "low": []}


def test_consumer_is_told_when_its_queue_is_deleted(scenario: Scenario) -> None:
    assert scenario("consuming", "cancelled") == [None]


def test_reply_goes_straight_to_the_channel_that_asked(scenario: Scenario) -> None:
    assert scenario("consuming", "directReply") == ["re: question", "7"]


def test_many_outstanding_publishes_are_confirmed_in_order(scenario: Scenario) -> None:
    assert scenario("publishing", "confirms") == {"confirmed": list(range(500)), "ready": 500}


def test_mandatory_message_without_a_queue_is_returned_before_its_confirm(
    scenario: Scenario, name: str
) -> None:
    assert scenario("publishing", "returned") == [["return", 312, "NO_ROUTE", name, "back"], ["confirm"]]


def test_large_body_comes_back_as_it_was(scenario: Scenario) -> None:
    assert scenario("publishing", "largeBody") == {"length": 3 * 1024 * 1024 + 1, "same": True}


def test_header_values_come_back_as_they_were(scenario: Scenario) -> None:
    assert scenario("publishing", "headers") == {
        "text": "żółw",
        "empty": "",
        "int8": -128,
        "uint8": 255,
        "int16": -32768,
        "uint16": 65535,
        "int32": -2147483648,
        "uint32": 4294967295,
        "int64": 1099511627776,
        "float": 0.5,
        "double": 3.141592653589793,
        "decimal": {"!": "decimal", "value": {"places": 2, "digits": 314}},
        "timestamp": {"!": "timestamp", "value": 1700000000},
        "true": True,
        "false": False,
        "none": None,
        "bytes": {"type": "Buffer", "data": [0, 255]},
        "table": {"deep": {"deeper": [1, {"deepest": None}]}},
        "array": ["a", 1, 2.5, [True], {}],
    }


def test_properties_come_back_as_they_were(scenario: Scenario) -> None:
    assert scenario("publishing", "properties") == {
        "contentType": "application/json",
        "contentEncoding": "gzip",
        "headers": {},
        "deliveryMode": 2,
        "priority": 9,
        "correlationId": "correlation",
        "replyTo": "reply",
        "expiration": "60000",
        "messageId": "message",
        "timestamp": 1700000000,
        "type": "type",
        "userId": "guest",
        "appId": "app",
    }


def test_cc_and_bcc_add_routing_keys_and_only_bcc_is_hidden(scenario: Scenario) -> None:
    assert scenario("publishing", "copies") == [["CC"], ["CC"], ["CC"]]


def test_server_names_a_queue_declared_without_a_name(scenario: Scenario) -> None:
    declared = scenario("topology", "serverNamed")
    assert declared.pop("queue").startswith("amq.gen-")
    assert declared == {"messageCount": 0, "consumerCount": 0}


def test_each_exchange_type_routes_by_its_rule(scenario: Scenario) -> None:
    assert scenario("topology", "exchanges") == {
        "direct": ["red"],
        "fanout": ["red", "blue", "green"],
        "topic": ["blue"],
        "headers": ["green"],
    }


def test_bound_and_alternate_exchanges_route_on(scenario: Scenario) -> None:
    assert scenario("topology", "exchangeToExchange") == {"target": ["known.way"], "spare": ["unknown"]}


def test_purge_and_delete_tell_how_many_messages_went(scenario: Scenario) -> None:
    assert scenario("topology", "removal") == [3, 1, 0]


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        ("missingQueue", 404),
        ("missingExchange", 404),
        ("inequivalent", 406),
        ("unknownTag", 406),
        ("locked", 405),
        ("reserved", 403),
    ],
)
def test_mistake_closes_the_channel_with_its_code_and_the_connection_goes_on(
    scenario: Scenario, mistake: str, code: int
) -> None:
    assert scenario("errors", mistake) == {"code": code, "goesOn": True}


def test_wrong_password_is_refused_with_403(scenario: Scenario) -> None:
    assert "403 (ACCESS-REFUSED)" in scenario("errors", "wrongPassword")


def test_unknown_vhost_closes_the_connection(scenario: Scenario) -> None:
    # amqplib does not tell the code of a close in answer to connection.open; other clients' tests do.
    assert scenario("errors", "unknownVhost") == "Expected ConnectionOpenOk; got <ConnectionClose channel:0>"
