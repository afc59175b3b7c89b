"""Reading the bodies of requests: small JSON objects."""

from __future__ import annotations

import json
from typing import Any

from warren.management.errors import BadRequest

BODY_BYTES_MAX = 4096


def object_in(body: bytes, expected: str, *, bytes_max: int = BODY_BYTES_MAX) -> dict[str, Any]:
    """The JSON object in a body. Errors tell the client what was `expected`."""
    if len(body) > bytes_max:
        raise BadRequest(f"the body has more than {bytes_max} bytes")
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest(f"the body is not JSON: expected {expected}") from None
    if not isinstance(given, dict):
        raise BadRequest(f"expected {expected}")
    return given
