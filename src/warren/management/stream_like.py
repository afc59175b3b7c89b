"""What of a stream the API uses, so that it depends on no more."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from warren.storage.log_listing import Log


@runtime_checkable
class StreamLike(Protocol):
    """`next_offset` is that of the first message that is not safe, or not there yet."""

    name: str
    vhost: str
    log: Log | None
    named_offsets: dict[str, int]

    @property
    def first_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def store_offset(self, name: str, offset: int) -> None: ...
    def forget_offset(self, name: str) -> None: ...
