"""What SIGHUP does: reads the settings again, and takes over what can change while the broker runs.

New connections get the new certificates, and no connection ends. Settings that changed but need a restart are
named in the log. If the new settings are wrong, the log says why, and the old ones stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields, replace

from warren.amqp.errors import AmqpError
from warren.server.app import Broker
from warren.server.config import LOG_LEVELS, Config
from warren.server.config_error import ConfigError
from warren.server.reloadable import ALWAYS, DEFINITIONS, IF_WANTED, WITH_TLS
from warren.server.tls import Loaded, load_files


class Reload:
    """`request` may be called at any time; while one reload runs, further requests become one more."""

    def __init__(self, broker: Broker, read_settings: Callable[[], Config]) -> None:
        self.broker = broker
        self.read_settings = read_settings
        self.task: asyncio.Task[None] | None = None  # the reload that runs
        self.is_wanted = False
        self.is_stopped = False

    async def stop(self) -> None:
        """End the reload that runs, and take no further request: the broker is about to stop."""
        self.is_stopped = True
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    def request(self) -> None:
        if self.is_stopped:
            return
        self.is_wanted = True
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self.is_wanted:
            self.is_wanted = False
            try:
                await self._reload()
            except (ConfigError, AmqpError) as error:
                self.broker.log.error("settings not reloaded", error=str(error))  # noqa: TRY400 - the operator's error
            except Exception as error:  # noqa: BLE001 - a mistake of ours must not be lost with the task
                self.broker.world.report(error)

    async def _reload(self) -> None:
        """Definitions come first: if one of them makes no sense, all other settings stay as they were."""
        broker = self.broker
        config, loaded = await asyncio.to_thread(self._read)
        for check in broker.settings_checks:
            check(config)
        tls = None if loaded is None else broker.tls
        changed = {each.name for each in fields(Config) if _differs(each.name, broker.config, config)}
        taken = changed & self._reloadable(config)
        following = replace(broker.config, **{name: getattr(config, name) for name in taken})
        if DEFINITIONS & taken:
            await broker.make_definitions(following)
        levels = broker.config.log_level, following.log_level
        broker.config = following
        if loaded is not None and tls is not None:
            tls.replace(loaded)
        for follow in broker.on_reload:
            follow()
        if "log_level" in taken:  # by the level that tells more, so that this change is told, too
            broker.set_log_level(min(levels, key=LOG_LEVELS.index))
        self._tell(taken, changed - taken, with_certificates=tls is not None)
        if "log_level" in taken:
            broker.set_log_level(following.log_level)

    def _tell(self, taken: set[str], left: set[str], *, with_certificates: bool) -> None:
        log = self.broker.log
        log.info("settings reloaded", changed=sorted(taken), certificates=with_certificates)
        if left:
            log.warning("settings that need a restart have changed", settings=sorted(left))

    def _reloadable(self, config: Config) -> set[str]:
        """The settings that can change while the broker runs; all others need a restart."""
        has_tls = self.broker.tls is not None and bool(config.tls_cert)
        return ALWAYS | (WITH_TLS if has_tls else set()) | (IF_WANTED if config.reload_definitions else set())

    def _read(self) -> tuple[Config, Loaded | None]:
        config = self.read_settings()
        settings = config.tls()
        return config, None if settings is None else load_files(settings)


def _differs(name: str, old: Config, new: Config) -> bool:
    before: object = getattr(old, name)
    after: object = getattr(new, name)
    return before != after
