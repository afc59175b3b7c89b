"""How far the copy of a stream has come, in named offsets of our stream: they survive a kill of the command
and of the broker, and go with the stream.

    warren.import.<digest of the source's cluster>.<offset here>  =  <offset there>

A note says: all that the source has before `there` is in our stream. What it has from there on is in our
stream from `here` on, as far as it has arrived. A note is a single named offset, so it is never half written;
until an older one is forgotten there are two, and the last holds.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from warren.client.api import Api

PREFIX = "warren.import."
DIGEST_BYTES = 8


class Note(NamedTuple):
    here: int
    there: int


class Ends(NamedTuple):
    """Where our stream begins and ends."""

    first: int
    next: int


class StreamNotes:
    """The notes about one stream, by our HTTP API."""

    def __init__(self, api: Api, vhost: str, stream: str, cluster: str) -> None:
        self._api = api
        self._vhost = vhost
        self._stream = stream
        digest = hashlib.blake2b(cluster.encode(), digest_size=DIGEST_BYTES).hexdigest()
        self._prefix = f"{PREFIX}{digest}."
        self._known = self._read()

    def last(self) -> Note | None:
        return max(self._known, default=None)

    def put(self, note: Note) -> None:
        """Note this, and forget what was noted before."""
        if note in self._known:
            return
        self._api.put(*self._path(note), content={"offset": note.there})
        for old in self._known:
            if old.here != note.here:
                self._api.delete(*self._path(old))
        self._known = [note]

    def ends(self) -> Ends:
        answer = self._api.post("streams", self._vhost, content={"queues": [self._stream]})
        row = answer["queues"][0]
        return Ends(row["first_offset"], row["next_offset"])

    def _read(self) -> list[Note]:
        rows = self._api.get("streams", self._vhost, self._stream, "offsets")
        ours = [row for row in rows if row["name"].startswith(self._prefix)]
        return [Note(int(row["name"].removeprefix(self._prefix)), row["offset"]) for row in ours]

    def _path(self, note: Note) -> tuple[str, ...]:
        return "streams", self._vhost, self._stream, "offsets", f"{self._prefix}{note.here}"
