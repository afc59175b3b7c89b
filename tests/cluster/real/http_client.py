"""A broker's HTTP API, as guest."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any

SECONDS_MAX = 60.0
FIRST_ERROR = 400
GUEST = "Basic " + base64.b64encode(b"guest:guest").decode()


class HttpClient:
    def __init__(self, url: str) -> None:
        self.host = url.removeprefix("http://")

    def get(self, path: str) -> Any:
        return json.loads(self._ask("GET", path, None))

    def put(self, path: str, content: dict[str, Any]) -> None:
        self._ask("PUT", path, content)

    def post(self, path: str, content: dict[str, Any]) -> None:
        self._ask("POST", path, content)

    def delete(self, path: str) -> None:
        self._ask("DELETE", path, None)

    def refused(self, method: str, path: str) -> str:
        """What the broker says to a request that it refuses."""
        status, found = self._send(method, f"/api/{path}", None)
        assert status >= FIRST_ERROR, (status, found)
        return found.decode()

    def text(self, path: str) -> bytes:
        """What is not part of the API."""
        return self._send("GET", path, None)[1]

    def _ask(self, method: str, path: str, content: dict[str, Any] | None) -> bytes:
        status, found = self._send(method, f"/api/{path}", content)
        assert status < FIRST_ERROR, (status, found)
        return found

    def _send(self, method: str, path: str, content: dict[str, Any] | None) -> tuple[int, bytes]:
        body = None if content is None else json.dumps(content).encode()
        headers = {"Authorization": GUEST, "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(self.host, timeout=SECONDS_MAX)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
