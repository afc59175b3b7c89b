"""The headers CC and BCC: further routing keys for a message. BCC is removed before delivery."""

from __future__ import annotations

from warren.amqp.errors import PreconditionFailed
from warren.amqp.properties import BasicProperties, decode_properties
from warren.amqp.table import Table, type_name


def take(properties: bytes) -> tuple[list[str], bytes]:
    """The keys in CC and BCC, and the properties without BCC."""
    decoded = decode_properties(properties)
    headers = decoded.headers
    keys = take_keys(decoded)
    return keys, properties if decoded.headers is headers else decoded.encode()


def take_keys(properties: BasicProperties) -> list[str]:
    """The keys in CC and BCC. The properties lose BCC."""
    headers = properties.headers or {}
    keys = [*_keys(headers, "CC"), *_keys(headers, "BCC")]
    if "BCC" in headers:
        properties.headers = {name: value for name, value in headers.items() if name != "BCC"}
    return keys


def _keys(headers: Table, name: str) -> list[str]:
    """The strings in one of the headers. Other values in its array are ignored, as in RabbitMQ."""
    value = headers.get(name, [])
    if not isinstance(value, list):
        kind = type_name(value)
        raise PreconditionFailed(f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}')
    return [key for key in value if isinstance(key, str)]
