"""The API of a broker in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.http_api import Api, make_broker


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with make_broker(tmp_path / "data") as broker, aiohttp.ClientSession() as session:
        yield Api(broker, session)
