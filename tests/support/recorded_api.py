"""An HTTP API that records requests and answers as it is told, for the tests of commands."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class Recorded:
    method: str
    target: str
    content: Any
    headers: dict[str, str]


@dataclass
class Raw:
    """An answer that is no JSON."""

    body: bytes


def body_of(answer: Any) -> bytes:
    if isinstance(answer, Raw):
        return answer.body
    return b"" if answer is None else json.dumps(answer).encode()


class RecordedApi:
    """While it is entered, it answers each request with the next of `answers`, or else with 204."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.answers: list[tuple[int, Any]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                content = json.loads(body) if body else None
                api.requests.append(Recorded(self.command, self.path, content, dict(self.headers)))
                status, given = api.answers.pop(0) if api.answers else (204, None)
                text = body_of(given)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names that http.server asks for

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in http.server
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        return f"http://guest:guest@127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
