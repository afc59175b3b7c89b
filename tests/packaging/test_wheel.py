"""The wheel: installed in an empty environment without a compiler, it is a whole broker."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pika
import pytest

from tests.support.process import BrokerProcess

PROJECT = Path(__file__).parents[2]
MINUTES_MAX = 15

pytestmark = pytest.mark.slow


def run(*words: str | Path, **more: str) -> str:
    environment = os.environ | more
    done = subprocess.run(
        words,
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60 * MINUTES_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs of an environment that has the wheel and what it depends on."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", directory, ".")
    (wheel,) = directory.glob("warrenmq-*.whl")
    venv.create(directory / "venv", with_pip=True)
    programs = directory / "venv/bin"
    run(
        programs / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
        wheel,
        CC="/bin/false",
    )
    return programs


@pytest.mark.timeout(60 * MINUTES_MAX)
def test_the_installed_wheel_is_a_broker(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "warren", "--version").startswith("warren ")
    with BrokerProcess(tmp_path / "data", python=str(installed / "python")) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.address.url()))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"hello", pika.BasicProperties(delivery_mode=2))
        assert channel.basic_get("q", auto_ack=True)[2] == b"hello"
        connection.close()
