"""What the memory alarm counts, and the numbers that it logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import warren
from warren.broker import events
from warren.server.memory import MemoryAlarm, ResidentMemory

LIMIT_BYTES = 1_000


@dataclass
class FakeUse:
    """A `MemoryUse` with fixed numbers: what is used, and the upper bound that is cheap to ask for."""

    used: int = 0
    seeming: int = 0
    looks: int = 0
    code_bytes: int = 0

    def used_bytes_most(self) -> int:
        return max(self.used, self.seeming)

    def used_bytes(self) -> int:
        self.looks += 1
        return self.used

    def message_bytes(self) -> int:
        return self.used

    def kept_bytes(self) -> int:
        return 7

    def idle_bytes(self) -> int:
        return 0

    def give_back(self, most: int) -> None:
        raise AssertionError("nothing is idle")


@pytest.mark.parametrize(
    ("used", "seeming", "is_exceeded", "looks"),
    [(10, 20, False, 0), (10, 2_000, False, 1), (2_000, 2_000, True, 1), (1_000, 1_000, False, 0)],
)
def test_alarm_looks_closely_only_if_memory_seems_short(
    used: int, seeming: int, is_exceeded: bool, looks: int
) -> None:
    use = FakeUse(used, seeming)
    assert MemoryAlarm(use, LIMIT_BYTES).is_exceeded() is is_exceeded
    assert use.looks == looks


def test_embedded_broker_looks_at_what_is_resident() -> None:
    use = ResidentMemory()
    assert not MemoryAlarm(use, 1 << 50).is_exceeded()
    assert MemoryAlarm(use, 1).is_exceeded()


async def test_alarm_tells_what_was_counted_by_kind(tmp_path: Path) -> None:
    use = FakeUse()
    broker = warren.Broker(port=0, data_dir=tmp_path / "data", memory_watermark=LIMIT_BYTES, memory_use=use)
    seen: list[events.Event] = []
    async with broker:
        broker.subscribe(events.AlarmRaised, seen.append)
        broker.subscribe(events.AlarmCleared, seen.append)
        for used in (10, 5_000, 6_000, 20):
            use.used = used
            broker.resources.check_memory()
    raised, cleared = seen
    assert isinstance(raised, events.AlarmRaised)
    assert isinstance(cleared, events.AlarmCleared)
    assert raised.counted.items() >= {"used": 5_000, "limit": LIMIT_BYTES, "kept": 7}.items()
    assert {"messages_ready", "messages_packed", "messages_other", "storage", "code"} <= raised.counted.keys()
    assert cleared.counted["used"] == 20
