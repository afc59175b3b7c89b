"""`GET /api/auth`: how one logs in, for programs that show pages, before they know who asks.

RabbitMQ's pages learn here from which server they get tokens. This broker has no such pages, but its settings
of `[oauth2]` tell programs the same. The fields of RabbitMQ 3.10 are there for those that know no others.
"""

from __future__ import annotations

from aiohttp import web

from warren.management.context import Context
from warren.management.endpoint import Endpoint
from warren.management.json_text import json_response
from warren.management.rights import Right
from warren.management.schema import FLAG, TEXT, record
from warren.server.config import INTERNAL, OAUTH2

GIVES = record(
    {"oauth_enabled": FLAG}, oauth_provider_url=TEXT, oauth_resource_id=TEXT, oauth_disable_basic_auth=FLAG
)
OF_OLD_VERSIONS = {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}


class LoginSettings:
    def __init__(self, context: Context) -> None:
        self.config = context.broker.config

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/api/auth",
                handler=self.get,
                summary="Whether one can log in by OAuth 2, and where.",
                right=Right.PUBLIC,
                gives=GIVES,
            )
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Programs need the address of a server: with keys from a file alone, they cannot know it."""
        backends, oauth2 = self.config.auth_backends, self.config.oauth2
        if OAUTH2 not in backends or not oauth2.issuer:
            return json_response({"oauth_enabled": False, **OF_OLD_VERSIONS})
        return json_response(
            {
                "oauth_enabled": True,
                "oauth_provider_url": oauth2.issuer,
                "oauth_resource_id": oauth2.resource_server_id,
                "oauth_disable_basic_auth": INTERNAL not in backends,
                **OF_OLD_VERSIONS,
            }
        )
