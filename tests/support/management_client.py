"""Speaks RabbitMQ's management API, to RabbitMQ or to WarrenMQ."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

REQUEST_SECONDS_MAX = 120
GUEST = ("guest", "guest")
REFUSED_MIN = 400  # the lowest status of a refusal


class ManagementClient:
    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, method: str, path: str, value: object = None, *, login: tuple[str, str] = GUEST) -> Any:
        """The JSON of the answer, which is no refusal; None if it has none."""
        status, content = self.ask(method, path, value, login=login)
        assert status < REFUSED_MIN, f"{method} {path}: {status} {content!r}"
        return content

    def ask(
        self, method: str, path: str, value: object = None, *, login: tuple[str, str] = GUEST
    ) -> tuple[int, Any]:
        """The status of the answer, and its JSON if it has any."""
        status, content = self.send(
            method, path, None if value is None else json.dumps(value).encode(), login=login
        )
        return status, json.loads(content) if content else None

    def send(
        self, method: str, path: str, body: bytes | None = None, *, login: tuple[str, str] = GUEST
    ) -> tuple[int, bytes]:
        """The status of the answer, and its content."""
        credentials = base64.b64encode(":".join(login).encode()).decode()
        request = urllib.request.Request(  # noqa: S310 - a broker of the test
            f"{self.url}/api/{path}",
            body,
            {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as answer:  # noqa: S310 - as above
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
