from collections.abc import Sequence

WRITE: int
SYNC: int
SYNC_ALL: int
SYNC_DIRECTORY: int
RENAME: int
WRITE_SAFELY: int

def allocated_bytes() -> int: ...

class Buffer:
    @property
    def size(self) -> int: ...
    @property
    def allocated(self) -> int: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    def tobytes(self) -> bytes: ...

class Operation:
    kind: int
    file: int
    data: bytes | Buffer | None
    offset: int
    path: bytes | None
    target: bytes | None
    parts: Sequence[Buffer]
    def __init__(
        self,
        kind: int,
        *,
        file: int = -1,
        data: bytes | Buffer | None = None,
        offset: int = 0,
        path: bytes | None = None,
        target: bytes | None = None,
        parts: Sequence[Buffer] = (),
    ) -> None: ...
    def tobytes(self) -> bytes: ...

def write_at_once(file: int, data: bytes, offset: int) -> None: ...
def sync_file_system(file: int) -> None: ...

class Disk:
    done: int
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def submit(self, operations: list[Operation]) -> None: ...
    def has_result(self) -> bool: ...
    def result(self) -> OSError | None: ...
