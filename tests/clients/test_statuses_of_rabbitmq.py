"""Requests at the corners of the HTTP API, sent to a real RabbitMQ and to WarrenMQ. Statuses and errors are
the same, but for those that `corner_requests.txt` gives a reason for. Where RabbitMQ fails with 500, any
answer of ours that is no failure is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.conftest import needs_rabbitmq
from tests.support.management_client import REFUSED_MIN, ManagementClient
from tests.support.process import BrokerProcess
from tests.support.rabbitmq import RabbitMQ

pytestmark = [pytest.mark.slow, needs_rabbitmq]

INTERNAL_ERROR = 500
SECTION, REASON = "# ", "other: "
SET_UP, CLEAN_UP = "set-up", "clean-up"


@dataclass
class Request:
    line: str
    reason: str = ""  # why our answer is another one; empty if it is not


def read(text: str) -> dict[str, list[Request]]:
    """The requests of each section of the file."""
    sections: dict[str, list[Request]] = {}
    for part in text.split(f"\n{SECTION}")[1:]:
        name, *lines = part.strip().splitlines()
        sections[name] = []
        for line in map(str.strip, lines):
            if line.startswith(REASON):
                sections[name][-1].reason = line.removeprefix(REASON)
            else:
                sections[name].append(Request(line))
    return sections


REQUESTS = read(Path(__file__).with_name("corner_requests.txt").read_text())


@dataclass(frozen=True)
class Outcome:
    """What a client sees of an answer."""

    status: int
    error: object  # the field `error` of a refusal; None if it has none


@dataclass(frozen=True)
class Corner:
    """A broker with what the set-up makes."""

    api: ManagementClient
    node: str

    def send(self, line: str) -> Outcome:
        method, path, *body = line.replace("NODE", self.node).split(" ", 2)
        status, content = self.api.send(method, path, "".join(body).encode())
        told = json.loads(content) if status >= REFUSED_MIN and content.startswith(b"{") else {}
        return Outcome(status, told.get("error"))

    def send_all(self, section: str) -> None:
        for request in REQUESTS[section]:
            assert self.send(request.line).status < REFUSED_MIN, request.line


def corner_of(http_url: str) -> Iterator[Corner]:
    api = ManagementClient(http_url)
    corner = Corner(api, api.call("GET", "overview")["node"])
    corner.send_all(SET_UP)
    yield corner
    corner.send_all(CLEAN_UP)


@pytest.fixture(scope="module")
def there(rabbitmq: RabbitMQ) -> Iterator[Corner]:
    yield from corner_of(rabbitmq.http_url)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corner]:
    with BrokerProcess(tmp_path_factory.mktemp("warren") / "data") as broker:
        yield from corner_of(broker.http_url)


def is_as_there(ours: Outcome, theirs: Outcome) -> bool:
    if theirs.status == INTERNAL_ERROR:
        return ours.status < INTERNAL_ERROR
    return ours.status == theirs.status and theirs.error in {ours.error, None}


@pytest.mark.parametrize("section", [name for name in REQUESTS if name not in {SET_UP, CLEAN_UP}])
def test_statuses_and_errors_are_those_of_rabbitmq(there: Corner, here: Corner, section: str) -> None:
    """Those with a reason to be others must be others, or the reason is out of date."""
    wrong = []
    for request in REQUESTS[section]:
        theirs, ours = there.send(request.line), here.send(request.line)
        if is_as_there(ours, theirs) == bool(request.reason):
            wrong.append((request, theirs, ours))
    assert wrong == []
