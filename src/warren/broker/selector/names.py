"""What a name in a selector stands for.

    region          the header; NULL if the message has none of this name
    content-type    the header of this name if there is one, else the property, spelled with '_' or '-'
    JMSPriority     the same: the header of this name if there is one, else the property that JMS means
    amqp.priority   the property, even if there is a header of this name

Two properties have another value here than on the wire. `expiration` is a string of digits on the wire, and a
number of milliseconds here: it compares with 60000, not with '60000'. `JMSDeliveryMode` is 'PERSISTENT' or
'NON_PERSISTENT'; a message without a delivery mode is NON_PERSISTENT, as for the broker. Every other property
that is not set is NULL, `JMSPriority` too. `timestamp` and `JMSTimestamp` are as the publisher wrote them: in
seconds, says the specification.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import TypeAlias

from warren.amqp.properties import PERSISTENT, BasicProperties
from warren.amqp.table import Table
from warren.broker.selector.values import PLAIN, plain

Evaluate: TypeAlias = Callable[[BasicProperties, Table], object]
Read: TypeAlias = Callable[[BasicProperties], object]

PROPERTY_PREFIX = "amqp."


def _expiration(properties: BasicProperties) -> object:
    value = properties.expiration
    return int(value) if value is not None and value.isascii() and value.isdigit() else value


def _jms_delivery_mode(properties: BasicProperties) -> str:
    return "PERSISTENT" if properties.delivery_mode == PERSISTENT else "NON_PERSISTENT"


_FIELDS: dict[str, Read] = {
    field.name: attrgetter(field.name) for field in fields(BasicProperties) if field.name != "headers"
} | {"expiration": _expiration}

PROPERTIES: dict[str, Read] = _FIELDS | {name.replace("_", "-"): read for name, read in _FIELDS.items()}

JMS_PROPERTIES: dict[str, Read] = {
    "JMSPriority": _FIELDS["priority"],
    "JMSCorrelationID": _FIELDS["correlation_id"],
    "JMSMessageID": _FIELDS["message_id"],
    "JMSTimestamp": _FIELDS["timestamp"],
    "JMSType": _FIELDS["type"],
    "JMSDeliveryMode": _jms_delivery_mode,
}


def is_property(name: str) -> bool:
    """Whether the name always means a property, never a header."""
    return name.startswith(PROPERTY_PREFIX)


def is_known(name: str) -> bool:
    """Whether the name can mean anything: any name may be a header's, but only some are properties."""
    return not is_property(name) or name.removeprefix(PROPERTY_PREFIX) in PROPERTIES


def resolve(name: str) -> Evaluate:
    """A function that reads what the name stands for; see the table above."""
    if is_property(name):
        return _read_property(PROPERTIES[name.removeprefix(PROPERTY_PREFIX)])
    read = PROPERTIES.get(name) or JMS_PROPERTIES.get(name)
    return _read_header(name) if read is None else _read_either(name, read)


def _read_property(read: Read) -> Evaluate:
    def evaluate(properties: BasicProperties, _headers: Table) -> object:
        value = read(properties)
        return value if type(value) in PLAIN else plain(value)

    return evaluate


def _read_header(name: str) -> Evaluate:
    def evaluate(_properties: BasicProperties, headers: Table) -> object:
        value = headers.get(name)
        return value if type(value) in PLAIN else plain(value)

    return evaluate


def _read_either(name: str, read: Read) -> Evaluate:
    def evaluate(properties: BasicProperties, headers: Table) -> object:
        value = headers[name] if name in headers else read(properties)
        return value if type(value) in PLAIN else plain(value)

    return evaluate
