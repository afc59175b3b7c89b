"""The Spark job in `examples/` does and prints what its docstring says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.examples import path_of, run_example, told
from tests.support.process import BrokerProcess


@pytest.mark.timeout(600)  # it starts a Java of its own
def test_spark_job_prints_what_its_docstring_says(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with BrokerProcess(tmp_path / "data") as broker:
        lines = run_example(
            path_of("spark_job"), home=home, AMQP_URL=broker.address.url(), HTTP_URL=broker.http_url
        )
    assert lines == told("spark_job")
