from typing import Protocol

from warren.broker.message import Message
from warren.storage.problems import Problems
from warren.storage.segment import Segment

class Files(Protocol):
    def open(self, path: str) -> int: ...

def read_figures() -> tuple[int, int, int]: ...

class Window:
    def __init__(self, files: Files) -> None: ...
    def read(self, segment: Segment, offset: int, position: int, problems: Problems) -> Message | None: ...
