from warren.storage.disk import Buffer
from warren.storage.segment import Segment

def put_head(head: Buffer, salt: int, segments: list[Segment], above: int) -> int: ...
def read_record(
    data: bytes, at: int, salt: int | None = None
) -> tuple[int, int, list[tuple[str, int, bytes]] | None] | None: ...
