"""Fixtures for every folder of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.compiled import REBUILD, SOURCE, sources, stale
from tests.support.process import Address, BrokerProcess

# A busy machine may be slow. No file of examples is left behind: a failure prints what repeats it.
settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None, print_blob=True
)
settings.load_profile("tests")


def pytest_configure() -> None:
    """Tests of a module that was built from an older source would say nothing."""
    old = stale(sources())
    if old:
        names = ", ".join(str(path.relative_to(SOURCE)) for path in old)
        raise pytest.UsageError(f"compiled before its source changed: {names}; build it again: {REBUILD}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        metavar="HOST:PORT",
        help="run the client and semantics tests against this running broker, to compare with another one",
    )


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """One broker for all tests that only need a broker; they use names of their own."""
    given = request.config.getoption("--broker")
    if given:
        host, _, port = given.rpartition(":")
        yield Address(host, int(port))
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process.address
