"""Makes the authenticator `oauth2` for a broker."""

from __future__ import annotations

from typing import Any

from warren.server.oauth.tokens import OAuth2


def oauth2(broker: Any) -> OAuth2:
    return OAuth2(broker.config.oauth2, broker.log, broker.world.now, broker.world.time_ms)
