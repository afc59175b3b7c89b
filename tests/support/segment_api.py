"""A fake of the HTTP API that readers use, over the files of a data directory. It is for tests in which the
broker refuses, vanishes or answers nonsense, which a real one does not do on demand.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from array import array
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from warren.pipeline.segments.errors import ReadError
from warren.pipeline.segments.files import FileLog
from warren.pipeline.segments.log import Contents, SourceSegment


class SegmentApi:
    """Runs in a thread between entering and leaving."""

    def __init__(self, path: str) -> None:
        self.log = FileLog(path)
        self.secret = "Basic " + base64.b64encode(b"guest:guest").decode()
        self.forbidden: set[str] = set()  # queues that the user may not read
        self.failures: list[int] = []  # statuses to answer the next requests with
        self.offsets: dict[str, int] = {}  # that readers have put, by path
        self.ranges: list[str] = []  # the headers `Range` of all requests for bytes
        self.asked: list[str] = []  # one entry for each POST
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, path: str, head: Any) -> tuple[int, bytes]:
        if self.failures:
            return self.failures.pop(0), b"{}"
        if head["Authorization"] != self.secret:
            return 401, b'{"error":"not_authorised"}'
        parts = [unquote(part) for part in urlsplit(path).path.split("/")[2:]]
        try:
            return self._route(parts, head)
        except ReadError as error:
            return 404, json.dumps({"error": "Object Not Found", "reason": str(error)}).encode()

    def _route(self, parts: list[str], head: Any) -> tuple[int, bytes]:
        if len(parts) == 2:
            queues = self.log.queues(parts[1])
            return 200, json.dumps([{"name": each.name, "type": each.kind} for each in queues]).encode()
        if parts[2] in self.forbidden:
            return 403, b'{"error":"not_authorised","reason":"no read permission"}'
        contents = self.log.contents(parts[1], parts[2])
        if len(parts) == 3:
            return 200, json.dumps(_listing(contents)).encode()
        base = int(parts[3])
        found = next((each for each in contents.segments if each.base == base), None)
        return (404, b"{}") if found is None else self._bytes(contents, found, head["Range"])

    def answer_many(self, path: str, wanted: Any) -> tuple[int, bytes]:
        """Answer about those of the wanted queues that exist. It never waits for a change."""
        self.asked.append("POST")
        if self.failures:
            return self.failures.pop(0), b"{}"
        _, what, vhost = (unquote(part) for part in urlsplit(path).path.split("/")[1:])
        if self.forbidden & set(wanted["queues"]):
            return 403, b'{"error":"not_authorised","reason":"no read permission"}'
        try:
            found = [_listing(each) for each in self.log.contents_of(vhost, wanted["queues"]).values()]
        except ReadError as error:
            return 404, json.dumps({"error": "Object Not Found", "reason": str(error)}).encode()
        if what == "segments":
            return 200, json.dumps(found).encode()
        for row in found:
            for segment in row.pop("segments")[-1:]:
                row |= {"base": segment["base"], "bytes": segment["bytes"]}
        version = hashlib.sha256(json.dumps(found).encode()).hexdigest()
        return 200, json.dumps({"version": version, "queues": found}).encode()

    def _bytes(self, contents: Contents, segment: SourceSegment, wanted: str) -> tuple[int, bytes]:
        self.ranges.append(wanted)
        first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
        opened = self.log.open(contents.queue, segment)
        try:
            return 206, bytes(opened.read(first, min(last + 1, segment.size_bytes) - first))
        finally:
            opened.close()


def _listing(contents: Contents) -> dict[str, Any]:
    return {
        "vhost": contents.queue.vhost,
        "queue": contents.queue.name,
        "type": contents.queue.kind,
        "stream_id": contents.queue.stream_id,
        "first_offset": contents.first_offset,
        "next_offset": contents.next_offset,
        "segments": [
            {
                "part": each.part,
                "base": each.base,
                "first_offset": each.first_offset,
                "last_offset": each.end_offset - 1,
                "bytes": each.size_bytes,
                "closed": each is not contents.segments[-1],
                "first_timestamp": None,
                "last_timestamp": None,
                "acked": _runs(each.acked),
            }
            for each in contents.segments
        ],
    }


def _runs(acked: bytes) -> list[list[int]]:
    numbers = array("q", acked)
    return [[first - 1, end - first] for first, end in zip(numbers[::2], numbers[1::2], strict=True)]


def _handler(api: SegmentApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._reply(*api.answer(self.path, self.headers))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._reply(*api.answer_many(self.path, json.loads(body)))

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            api.offsets[unquote(self.path)] = json.loads(body)["offset"]
            self._reply(204, b"")

        def _reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: it would be mixed with the output of the test."""

    return Handler
