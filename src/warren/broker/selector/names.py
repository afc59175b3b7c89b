"""What a name in a selector stands for.

    region          the header; NULL if the message has none of this name
    content-type    the header of this name if there is one, else the property, spelled with '_' or '-'
    JMSPriority     the same: the header of this name if there is one, else the property that JMS means
    amqp.priority   the property, whatever the headers are

Two are not what the wire has. `expiration` is digits there and a number of milliseconds here: it compares
with 60000, not with '60000'. `JMSDeliveryMode` is 'PERSISTENT' or 'NON_PERSISTENT', the latter also for a
message without a mode, as the broker sees it. Every other property that is not set is NULL, `JMSPriority`
too. `timestamp` and `JMSTimestamp` are what the publisher wrote: seconds, by the specification.
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
    """Whether it is never a header."""
    return name.startswith(PROPERTY_PREFIX)


def is_known(name: str) -> bool:
    """Every name may be a header's; not so those that are never one."""
    return not is_property(name) or name.removeprefix(PROPERTY_PREFIX) in PROPERTIES


def resolve(name: str) -> Evaluate:
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
