"""Debian's amqp-tools, which are librabbitmq, the C client: what a shell script does with a broker."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.clients.conftest import LARGE_BODY, WAIT_SECONDS_MAX
from tests.support.process import Address

pytestmark = pytest.mark.skipif(
    shutil.which("amqp-publish") is None, reason="Debian's amqp-tools are not installed"
)

Tool = Callable[..., bytes]


@pytest.fixture
def tool(broker: Address) -> Tool:
    """Runs amqp-NAME and gives what it printed."""

    def run(tool: str, *arguments: str, stdin: bytes = b"", status: int = 0) -> bytes:
        done = subprocess.run(
            [f"amqp-{tool}", "--url", broker.url(), *arguments],
            input=stdin,
            capture_output=True,
            timeout=WAIT_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


@pytest.fixture
def queue(tool: Tool, name: str) -> Iterator[str]:
    assert tool("declare-queue", "--queue", name) == f"{name}\n".encode()
    yield name
    tool("delete-queue", "--queue", name)


def test_published_body_is_what_get_prints(tool: Tool, queue: str) -> None:
    tool("publish", "--routing-key", queue, "--body", "hello")
    assert tool("get", "--queue", queue) == b"hello"


def test_large_body_comes_back_as_it_was(tool: Tool, queue: str) -> None:
    tool("publish", "--routing-key", queue, stdin=LARGE_BODY)
    assert tool("get", "--queue", queue) == LARGE_BODY


def test_get_from_an_empty_queue_ends_with_status_two(tool: Tool, queue: str) -> None:
    assert tool("get", "--queue", queue, status=2) == b""


def test_each_line_becomes_a_message_and_consume_takes_them_in_order(tool: Tool, queue: str) -> None:
    tool("publish", "--routing-key", queue, "--line-buffered", stdin=b"one\ntwo\nthree\n")
    assert tool("consume", "--queue", queue, "--count", "3", "cat") == b"one\ntwo\nthree\n"


def test_consume_with_prefetch_leaves_the_rest_in_the_queue(tool: Tool, queue: str) -> None:
    tool("publish", "--routing-key", queue, "--line-buffered", stdin=b"one\ntwo\nthree\n")
    tool("consume", "--queue", queue, "--count", "1", "--prefetch-count", "1", "cat")
    assert tool("delete-queue", "--queue", queue) == b"2\n"


def test_server_names_a_queue_declared_without_a_name(tool: Tool) -> None:
    name = tool("declare-queue", "--queue", "").decode().strip()
    assert name.startswith("amq.gen-")
    assert tool("delete-queue", "--queue", name) == b"0\n"


def test_delete_if_empty_spares_a_queue_with_messages(tool: Tool, queue: str) -> None:
    tool("publish", "--routing-key", queue, "--body", "kept")
    assert b"PRECONDITION_FAILED" in tool("delete-queue", "--queue", queue, "--if-empty", status=1)
    assert tool("get", "--queue", queue) == b"kept"


def test_declaring_again_as_durable_is_a_failed_precondition(tool: Tool, queue: str) -> None:
    error = tool("declare-queue", "--queue", queue, "--durable", status=1)
    assert b"PRECONDITION_FAILED - inequivalent arg 'durable'" in error


def test_get_from_a_missing_queue_says_404(tool: Tool, name: str) -> None:
    assert b"404" in tool("get", "--queue", name, status=1)


def test_wrong_password_is_refused(tool: Tool, name: str, broker: Address) -> None:
    url = broker.url().replace(":guest@", ":wrong@")
    assert b"ACCESS_REFUSED" in tool("get", "--queue", name, "--url", url, status=1)
