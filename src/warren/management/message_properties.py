"""The properties of a message as JSON, and back."""

from __future__ import annotations

from dataclasses import fields

from warren.amqp.properties import BasicProperties
from warren.management.fields import Fields
from warren.management.schema import ANY, TABLE, Schema

OCTET_MAX, TIMESTAMP_MAX = 2**8 - 1, 2**64 - 1
NUMBERS = {"delivery_mode": OCTET_MAX, "priority": OCTET_MAX, "timestamp": TIMESTAMP_MAX}
HEADERS = "headers"
PROPERTIES: Schema = {"anyOf": [TABLE, {"type": "array", "items": ANY}]}
"""As `properties_shown` gives them."""


def properties_in(given: Fields) -> BasicProperties:
    """The properties in a JSON object. As in RabbitMQ, fields that are no properties are passed over."""
    found = BasicProperties()
    for each in fields(BasicProperties):
        name = each.name
        if name not in given:
            continue
        if name == HEADERS:
            found.headers = given.table(name)
        elif name in NUMBERS:
            setattr(found, name, given.count(name, most=NUMBERS[name]))
        else:
            setattr(found, name, given.name(name))
    return found


def properties_shown(properties: BasicProperties) -> dict[str, object] | list[object]:
    """Those that the publisher set. Without any, RabbitMQ gives an empty list of them."""
    values = {each.name: getattr(properties, each.name) for each in fields(BasicProperties)}
    return {name: value for name, value in values.items() if value is not None} or []
