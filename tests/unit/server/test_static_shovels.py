"""Static shovels: those of the settings, from the start on and after SIGHUP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import warren
from tests.support.happenings import Happenings
from tests.support.http_api import GUEST
from warren import commands
from warren.broker.events import ShovelStarted, ShovelStopped
from warren.relay.service import RelayName, relays_of
from warren.relay.supervisor import State
from warren.server.config import Config, load
from warren.server.config_definitions import StaticShovel
from warren.server.config_error import ConfigError
from warren.server.reload import Reload

WITHIN: dict[str, Any] = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}


def named(name: str, vhost: str = "/", **changed: object) -> StaticShovel:
    here = f"amqp:///{quote(vhost, safe='')}"
    definition = WITHIN | {"src-uri": here, "dest-uri": here} | changed
    return StaticShovel(name=name, vhost=vhost, definition=definition)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logger = logging.getLogger("warren")
    before = logger.level
    logger.setLevel(logging.INFO)
    yield caplog
    logger.setLevel(before)


@pytest.fixture
async def broker(tmp_path: Path, log: pytest.LogCaptureFixture) -> AsyncIterator[warren.Broker]:
    settings = {"shovels": (named("one"), named("two", "v")), "vhosts": ("/", "v"), "users": (GUEST,)}
    made = warren.Broker(
        Config(port=0, http_port=-1, data_dir=tmp_path / "data", reload_definitions=True, **settings)  # type: ignore[arg-type]  # of several types
    )
    async with made as broker:
        yield broker


def names(broker: warren.Broker) -> list[tuple[str, str]]:
    return sorted(relays_of(broker).shovels)


async def reload(broker: warren.Broker, **changed: Any) -> None:
    config = replace(broker.config, **changed)
    read: Callable[[], Config] = lambda: config  # noqa: E731 - a name for what is read
    reloading = Reload(broker, read)
    reloading.request()
    assert reloading.task is not None
    await reloading.task


def said(log: pytest.LogCaptureFixture, text: str) -> dict[str, Any]:
    """The fields of the one line of the log with this text."""
    (record,) = [each for each in log.records if each.getMessage() == text]
    return vars(record)


def test_they_are_tables_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(
        """
        [[shovels]]
        name = "one"
        src-uri = "amqp://"
        src-queue = "a"
        dest-uri = ["amqp://b", "amqp://c"]

        [[shovels]]
        name = "two"
        vhost = "v"
        """
    )
    found = load({"config": str(path)}, {}).shovels
    definition = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": ["amqp://b", "amqp://c"]}
    assert found == (
        StaticShovel(name="one", vhost="/", definition=definition),
        StaticShovel(name="two", vhost="v", definition={}),
    )


async def test_they_run_from_the_start_on(broker: warren.Broker) -> None:
    assert names(broker) == [("/", "one"), ("v", "two")]
    assert {relays_of(broker).kind_of(RelayName(*name)) for name in names(broker)} == {"static"}
    with Happenings(broker, ShovelStarted) as happenings:
        for name in (RelayName("/", "one"), RelayName("v", "two")):
            while relays_of(broker).shovels[name].status.state is not State.RUNNING:
                await happenings.until(ShovelStarted)


async def test_they_are_no_definitions(broker: warren.Broker) -> None:
    await broker.stop()
    broker.config = replace(broker.config, shovels=())
    await broker.start()
    assert names(broker) == []
    assert broker.node.parameters.of_vhosts == {}


@pytest.mark.parametrize(
    ("shovel", "reason"),
    [
        (named("s", **{"ack-mode": "x"}), "shovels: shovel 's': ack-mode should be one of"),
        (named("s", "absent"), "shovels: 's': there is no vhost 'absent'"),
    ],
)
async def test_broker_does_not_start_with_one_that_makes_no_sense(
    tmp_path: Path, shovel: StaticShovel, reason: str
) -> None:
    broker = warren.Broker(port=0, data_dir=tmp_path / "data", users=(GUEST,), shovels=(shovel,))
    with pytest.raises(ConfigError) as raised:
        await broker.start()
    assert str(raised.value).startswith(reason)


async def test_broker_does_not_start_if_a_parameter_has_its_name(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with warren.Broker(port=0, data_dir=data, users=(GUEST,)) as broker:
        broker.execute(commands.SetParameter(vhost="/", component="shovel", name="s", value=WITHIN))
    again = warren.Broker(port=0, data_dir=data, users=(GUEST,), shovels=(named("s"),))
    with pytest.raises(ConfigError) as raised:
        await again.start()
    assert str(raised.value) == "shovels: 's': a parameter of vhost '/' has this name"


async def test_sighup_starts_ends_and_changes_them(broker: warren.Broker) -> None:
    kept = relays_of(broker).shovels[RelayName("/", "one")]
    with Happenings(broker, ShovelStopped) as happenings:
        await reload(broker, shovels=(named("one"), named("three", "w")), vhosts=("/", "v", "w"))
        assert happenings.seen == [ShovelStopped("v", "two", "it was deleted")]
        assert names(broker) == [("/", "one"), ("w", "three")]
        assert relays_of(broker).shovels[RelayName("/", "one")] is kept
        await reload(broker, shovels=(named("one", **{"dest-queue": "c"}),))
    changed = relays_of(broker).shovels[RelayName("/", "one")]
    assert changed is not kept
    assert happenings.seen[1:] == [
        ShovelStopped("/", "one", "its definition has changed"),
        ShovelStopped("w", "three", "it was deleted"),
    ]


async def test_sighup_with_a_wrong_one_changes_nothing(
    broker: warren.Broker, log: pytest.LogCaptureFixture
) -> None:
    before = dict(relays_of(broker).shovels)
    await reload(
        broker, shovels=(named("one"), named("bad", **{"src-uri": "amqp://me:canary@b:x"})), heartbeat=7
    )
    assert said(log, "settings not reloaded")["error"].startswith("shovels: shovel 'bad': src-uri is wrong")
    assert "canary" not in log.text
    assert relays_of(broker).shovels == before
    assert broker.config.shovels == (named("one"), named("two", "v"))


async def test_without_reload_definitions_the_log_says_that_they_need_a_restart(
    broker: warren.Broker, log: pytest.LogCaptureFixture
) -> None:
    await reload(broker, shovels=(), reload_definitions=False)
    assert said(log, "settings that need a restart have changed")["settings"] == ["shovels"]
    assert names(broker) == [("/", "one"), ("v", "two")]


async def test_one_that_ended_with_its_vhost_comes_back_with_it(broker: warren.Broker) -> None:
    broker.execute(commands.DeleteVhost(name="v"))
    assert names(broker) == [("/", "one")]
    broker.execute(commands.AddVhost(name="v"))
    await reload(broker)
    assert names(broker) == [("/", "one"), ("v", "two")]
