"""The watermarks of memory and disk, when they change while the broker runs. A real SIGHUP is sent in
`tests/clients/test_watermarks.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import warren
from warren.broker.memory import Memory
from warren.server.disk_space import DiskSpace
from warren.server.reload import Reload


class LaneWithLoan:
    """A `Borrower`, who has borrowed from the memory for ready messages."""

    def __init__(self, memory: Memory, lent: int) -> None:
        self.memory = memory
        self.lent = lent
        assert memory.lend(self, lent)

    def ready_bytes(self) -> int:
        return self.lent

    def needs_loan(self) -> bool:
        return True

    def return_loan(self) -> None:
        self.memory.take_back(self, self.lent)

    def holds_too_much(self) -> bool:
        return False

    def give_up(self, most: int) -> int:
        return 0


@pytest.mark.parametrize(("watermark", "left"), [(4_000.0, 1_000), (3_999.0, 0)])
async def test_queues_give_up_what_a_lower_watermark_does_not_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watermark: float, left: int
) -> None:
    """A quarter of it is for ready messages; here without an alarm, which would take back all."""
    async with warren.Broker(port=0, data_dir=tmp_path / "data") as broker:
        memory = broker.node.memory
        LaneWithLoan(memory, 1_000)
        monkeypatch.setattr(broker.memory_alarm, "is_exceeded", lambda: False)
        reloading = Reload(broker, lambda: replace(broker.config, memory_watermark=watermark))
        reloading.request()
        assert reloading.task is not None
        await reloading.task
        assert (memory.lent_bytes, memory.ready_limit_bytes) == (left, watermark // 4)


def test_new_limit_of_free_space_is_looked_at_at_once(tmp_path: Path) -> None:
    """However little was written since the last look, which found the old limit far away."""
    disk = DiskSpace(tmp_path, 1)
    assert not disk.is_found_low(0)
    disk.set_limit(2**60)
    assert disk.is_found_low(1)
    disk.set_limit(1)
    assert not disk.is_found_low(2)
