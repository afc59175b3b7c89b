"""What may happen to the files of a queue while no broker looks, and what of the queue is left then.

Each takes the directory of a queue that has the messages 0 to `MESSAGES`, of which the first `ACKED` are
acked, and gives the numbers that a broker must find there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeAlias

MESSAGES = 120
ACKED = 3
BODY_BYTES = 1_000
SEGMENT_BYTES = 20_000

Damage: TypeAlias = Callable[[Path], list[int]]


def left(*, lost: Collection[int] = (), acked: int = ACKED) -> list[int]:
    return [number for number in range(acked, MESSAGES) if number not in lost]


def segments(directory: Path) -> list[Path]:
    found = sorted(directory.glob("*.seg"))
    assert len(found) > 4
    return found


def ack_file(directory: Path) -> Path:
    (found,) = directory.glob("*.acks")
    return found


def numbers_in(data: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"(\d{8})\.", data)]


def flip_a_byte(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 8)


# --- segments ---


def flip_a_byte_of_a_message(segment: Path) -> list[int]:
    offset = SEGMENT_BYTES // 4
    lost = numbers_in(segment.read_bytes()[:offset])[-1]
    flip_a_byte(segment, offset)
    return left(lost=[lost])


def flip_a_byte_of_the_first_segment(directory: Path) -> list[int]:
    return flip_a_byte_of_a_message(segments(directory)[0])


def flip_a_byte_of_a_middle_segment(directory: Path) -> list[int]:
    return flip_a_byte_of_a_message(segments(directory)[2])


def flip_a_byte_of_the_newest_segment(directory: Path) -> list[int]:
    return flip_a_byte_of_a_message(segments(directory)[-1])


def flip_a_byte_of_the_newest_header(directory: Path) -> list[int]:
    flip_a_byte(segments(directory)[-1], 0)
    return left()


def change_the_version_of_the_newest_segment(directory: Path) -> list[int]:
    newest = segments(directory)[-1]
    flip_a_byte(newest, 8)
    return left(lost=numbers_in(newest.read_bytes()))


def cut_the_newest_segment(directory: Path) -> list[int]:
    newest = segments(directory)[-1]
    newest.write_bytes(newest.read_bytes()[: -BODY_BYTES // 2])
    return left(lost=[MESSAGES - 1])


def cut_a_middle_segment(directory: Path) -> list[int]:
    segment = segments(directory)[1]
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])
    torn = numbers_in(data[: len(data) // 2])[-1]
    return left(lost=[torn, *numbers_in(data[len(data) // 2 :])])


def lose_all_of(segment: Path, damage: Callable[[Path], None]) -> list[int]:
    lost = numbers_in(segment.read_bytes())
    damage(segment)
    return left(lost=lost)


def delete_the_first_segment(directory: Path) -> list[int]:
    return lose_all_of(segments(directory)[0], Path.unlink)


def delete_a_middle_segment(directory: Path) -> list[int]:
    return lose_all_of(segments(directory)[2], Path.unlink)


def delete_the_newest_segment(directory: Path) -> list[int]:
    return lose_all_of(segments(directory)[-1], Path.unlink)


def empty_a_middle_segment(directory: Path) -> list[int]:
    return lose_all_of(segments(directory)[2], empty)


def empty_the_newest_segment(directory: Path) -> list[int]:
    return lose_all_of(segments(directory)[-1], empty)


def fill_a_segment_with_garbage(directory: Path) -> list[int]:
    return lose_all_of(segments(directory)[2], fill_with_garbage)


# --- what is beside them ---


def empty_the_ack_file(directory: Path) -> list[int]:
    empty(ack_file(directory))
    return left(acked=0)


def fill_the_ack_file_with_garbage(directory: Path) -> list[int]:
    fill_with_garbage(ack_file(directory))
    return left(acked=0)


def delete_the_ack_file(directory: Path) -> list[int]:
    ack_file(directory).unlink()
    return left(acked=0)


def flip_a_byte_of_the_last_mark(directory: Path) -> list[int]:
    acks = ack_file(directory)
    flip_a_byte(acks, acks.stat().st_size - 1)
    return left(acked=ACKED - 1)


def cut_the_last_mark(directory: Path) -> list[int]:
    acks = ack_file(directory)
    acks.write_bytes(acks.read_bytes()[:-3])
    return left(acked=ACKED - 1)


def delete_the_indexes(directory: Path) -> list[int]:
    for index in directory.glob("*.idx"):
        index.unlink()
    return left()


def fill_the_indexes_with_garbage(directory: Path) -> list[int]:
    for index in directory.glob("*.idx"):
        fill_with_garbage(index)
    return left()


def put_foreign_files_there(directory: Path) -> list[int]:
    (directory / "notes.txt").write_text("not ours")
    (directory / "7.seg").write_text("not ours")
    (directory / "folder").mkdir()
    return left()


def delete_the_description(directory: Path) -> list[int]:
    (directory / "queue.json").unlink()
    return left()


DAMAGES: dict[Damage, str] = {  # and what the broker's log has of it
    flip_a_byte_of_the_first_segment: "bad record",
    flip_a_byte_of_a_middle_segment: "bad record",
    flip_a_byte_of_the_newest_segment: "bad record",
    flip_a_byte_of_the_newest_header: "segment's header is not sound",
    change_the_version_of_the_newest_segment: "segment is of an unknown version",
    cut_the_newest_segment: "torn tail",
    cut_a_middle_segment: "segment is shorter than its index says",
    delete_the_first_segment: "segment is missing",
    delete_a_middle_segment: "segment is missing",
    delete_the_newest_segment: "",
    empty_a_middle_segment: "segment is empty",
    empty_the_newest_segment: "segment is empty",
    fill_a_segment_with_garbage: "segment is shorter than its index says",
    empty_the_ack_file: "ack file is not sound",
    fill_the_ack_file_with_garbage: "ack file is not sound",
    delete_the_ack_file: "",
    flip_a_byte_of_the_last_mark: "bad marks in ack file",
    cut_the_last_mark: "bad marks in ack file",
    delete_the_indexes: "",
    fill_the_indexes_with_garbage: "index is not sound",
    put_foreign_files_there: "foreign file",
    delete_the_description: "",
}
