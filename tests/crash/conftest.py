"""A campaign of kills for each test. A failure tells its seed, and keeps the data directory."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.campaign import Campaign

SEED_VARIABLE = "WARREN_KILL_SEED"
SEED_MAX = 1_000_000


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    given = os.environ.get(SEED_VARIABLE)
    campaign = Campaign(tmp_path / "data", int(given) if given else random.randrange(SEED_MAX))
    yield campaign
    if not campaign.ledger.violations:
        shutil.rmtree(campaign.data_dir, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except BaseException as error:
        campaign = getattr(item, "funcargs", {}).get("campaign")
        if campaign is not None:
            error.add_note(f"the data directory: {campaign.data_dir}")
            error.add_note(f"to repeat it: {SEED_VARIABLE}={campaign.seed} pytest '{item.nodeid}'")
        raise
