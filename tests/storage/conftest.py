"""Brokers on one data directory, one after the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    shutil.rmtree(home.data_dir, ignore_errors=True)
