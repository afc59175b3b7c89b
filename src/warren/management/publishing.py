"""`POST /api/exchanges/{vhost}/{exchange}/publish`: publish one message, and say whether it reached a queue.
As in RabbitMQ this is for tests and rare messages: AMQP is far faster.
"""

from __future__ import annotations

import base64
import binascii

from aiohttp import web

from warren.amqp.errors import AmqpError
from warren.management.auth import entered_vhost
from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.errors import BadRequest
from warren.management.fields import Fields, fields_in
from warren.management.json_text import json_response
from warren.management.message_properties import properties_in
from warren.management.paths import EXCHANGE, VHOST, exchange_name
from warren.management.publication import Draft, Publication, origin_of
from warren.management.schema import FLAG, TABLE, TEXT, one_of, record

BODY_BYTES_MAX = 16 * 1024 * 1024
STRING, BASE64 = "string", "base64"
EXPECTED = '{"routing_key": "", "properties": {}, "payload": "", "payload_encoding": "string"}'


class Publishing:
    def __init__(self, context: Context) -> None:
        self.node = context.node

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="POST",
                path=f"/api/exchanges/{VHOST}/{EXCHANGE}/publish",
                handler=self.publish,
                summary="Publish a message; the answer comes when it is safe.",
                takes=record(
                    {
                        "routing_key": TEXT,
                        "properties": TABLE,
                        "payload": TEXT,
                        "payload_encoding": one_of(STRING, BASE64),
                    }
                ),
                gives=record({"routed": FLAG}),
                refuses=(413,),
            )
        ]

    async def publish(self, request: web.Request) -> web.StreamResponse:
        entered_vhost(self.node, request)  # refuses users before their body is read
        given = await fields_in(request, EXPECTED, bytes_max=BODY_BYTES_MAX)
        given.table("properties")  # which has to be there
        vhost, access = entered_vhost(self.node, request)
        draft = Draft(
            exchange=exchange_name(request),
            routing_key=given.name("routing_key"),
            properties=properties_in(given.fields("properties")),
            body=payload_in(given),
        )
        publication = Publication(self.node, vhost, access, origin_of(request))
        try:
            routed = await publication.publish(draft)
        except AmqpError as error:  # RabbitMQ tells here what closes its channel
            raise BadRequest(f"{error.code} {error.reply_text}") from None
        return json_response({"routed": routed})


def payload_in(given: Fields) -> bytes:
    payload, encoding = given.whole_text("payload"), given.text("payload_encoding")
    if encoding == STRING:
        return payload.encode()
    if encoding != BASE64:
        raise BadRequest(f"payload_encoding: {encoding!r} is neither {STRING} nor {BASE64}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("payload: not base64") from None
