"""One Spark for all tests here."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from warren.pipeline.session import open_session

HERE = Path(__file__).parent
CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests here more time, since Spark starts slowly; ignore sockets that PySpark leaves open."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect PySpark's garbage here, so that its warnings do not appear in a later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(app_name="tests", master="local[2]", conf=CONF)
    yield session
    session.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
