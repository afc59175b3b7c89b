"""Brokers in this process that relays carry messages between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import warren
from tests.support.federation import named_broker
from tests.unit.relay.yard import Yard


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    async with Yard(tmp_path) as yard:
        yield yard


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[warren.Broker]:
    async with named_broker("up", tmp_path) as broker:
        yield broker


@pytest.fixture
async def down(tmp_path: Path) -> AsyncIterator[warren.Broker]:
    async with named_broker("down", tmp_path) as broker:
        yield broker
