"""Makes the authenticator `oauth2` for a broker."""

from __future__ import annotations

from typing import Any

from warren.server.oauth.tokens import OAuth2


def oauth2(broker: Any) -> OAuth2:
    """On SIGHUP the keys are got again: one that was taken out of the set counts no more."""
    made = OAuth2(broker.config.oauth2, broker.log, broker.world.now, broker.world.time_ms)
    broker.on_reload.append(made.keys.load_again)
    return made
