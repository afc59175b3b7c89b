"""How a client logs in, and what it agrees on with its broker: by what one offers and the URI asks for."""

from __future__ import annotations

from warren.amqp.methods import ConnectionTune, ConnectionTuneOk
from warren.amqp.table import LENGTH, encode_table
from warren.client.errors import ClientError
from warren.client.frames import FRAME_MAX
from warren.client.uri import Uri

BY_PASSWORD = ("PLAIN", "AMQPLAIN")


def credentials(uri: Uri, offered: bytes) -> tuple[str, bytes]:
    """The mechanism to log in by, and the response that goes with it. `offered` are those of the broker."""
    there = offered.decode("utf-8", "replace").split()
    wanted = uri.tuning.mechanisms or BY_PASSWORD
    for mechanism in wanted:
        if mechanism in there:
            return mechanism, _response(mechanism, uri)
    raise ClientError(f"the broker at {uri.address} lets nobody log in by {' or '.join(wanted)}")


def _response(mechanism: str, uri: Uri) -> bytes:
    if mechanism == "PLAIN":
        return b"\0".join((b"", uri.user.encode(), uri.password.encode()))
    if mechanism == "AMQPLAIN":
        return encode_table({"LOGIN": uri.user, "PASSWORD": uri.password})[LENGTH.size :]
    return b""  # EXTERNAL: the certificate says who we are


def tuned(uri: Uri, tune: ConnectionTune, *, heartbeat_seconds: int) -> ConnectionTuneOk:
    """What the client agrees to. For numbers of channels and bytes, 0 is no limit."""
    tuning = uri.tuning
    limits = [each for each in (tune.channel_max, tuning.channel_max) if each]
    return ConnectionTuneOk(
        channel_max=min(limits, default=0),
        frame_max=min(tune.frame_max or FRAME_MAX, tuning.frame_max or FRAME_MAX, FRAME_MAX),
        heartbeat=heartbeat_seconds,
    )
