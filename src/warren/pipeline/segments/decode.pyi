import pyarrow as pa

from warren.storage.format import Data

MORE: int
FULL: int
END: int
BAD: int
OPEN_END: int

class Decoder:
    state: int
    needed: int
    rows: int
    above: int
    def __init__(
        self,
        vhost: str,
        queue: str,
        stream_id: str = "",
        *,
        headers: bool = True,
        body: bool = True,
        rows_max: int = ...,
        bytes_max: int = ...,
        since_ms: int = 0,
        until_ms: int = ...,
    ) -> None: ...
    def seek(self, above: int, first: int, end: int, acked: bytes) -> None: ...
    def feed(self, data: Data, at: int) -> int: ...
    def take(self) -> pa.RecordBatch | None: ...

def walk(data: Data, at: int, above: int, position: int, time_ms: int) -> tuple[int, int, int, int]: ...
def find_sound(data: Data, at: int, above: int, below: int) -> int: ...
