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
from warren.server.config import Config
from warren.server.config_error import ConfigError
from warren.server.tls import Loaded, load_files

LOG_LEVEL = "log_level"
SHOVELS = "shovels"
DEFINITIONS = {"vhosts", "users", "policies", "operator_policies", "vhost_limits"}
TLS_FILES_AND_RULES = {
    "tls_cert",
    "tls_key",
    "tls_key_password",
    "tls_ca",
    "tls_verify",
    "tls_versions",
    "tls_ciphers",
    "tls_login_from",
    "tls_login_san_type",
    "tls_login_san_index",
}


class Reload:
    """`request` may be called at any time; while one reload runs, further requests become one more."""

    def __init__(self, broker: Broker, read_settings: Callable[[], Config]) -> None:
        self.broker = broker
        self.read_settings = read_settings
        self.task: asyncio.Task[None] | None = None  # the reload that runs
        self.is_wanted = False

    def request(self) -> None:
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

    async def _reload(self) -> None:
        broker = self.broker
        config, loaded = await asyncio.to_thread(self._read)
        for check in broker.settings_checks:
            check(config)
        changed = {each.name for each in fields(Config) if _differs(each.name, broker.config, config)}
        taken = {LOG_LEVEL, "reload_definitions"} & changed
        if loaded is not None and broker.tls is not None:
            taken |= TLS_FILES_AND_RULES & changed
        if config.reload_definitions:
            taken |= (DEFINITIONS | {SHOVELS}) & changed
        broker.config = replace(broker.config, **{name: getattr(config, name) for name in taken})
        await self._take_over(loaded, taken)
        broker.log.info("settings reloaded", changed=sorted(taken), certificates=loaded is not None)
        if changed - taken:
            broker.log.warning("settings that need a restart have changed", settings=sorted(changed - taken))

    def _read(self) -> tuple[Config, Loaded | None]:
        config = self.read_settings()
        settings = config.tls()
        return config, None if settings is None else load_files(settings)

    async def _take_over(self, loaded: Loaded | None, taken: set[str]) -> None:
        broker = self.broker
        if loaded is not None and broker.tls is not None:
            broker.tls.replace(loaded)
        if LOG_LEVEL in taken:
            broker.set_log_level(broker.config.log_level)
        if DEFINITIONS & taken:
            await broker.make_definitions()
        for take_over in broker.on_reload:
            take_over()


def _differs(name: str, old: Config, new: Config) -> bool:
    before: object = getattr(old, name)
    after: object = getattr(new, name)
    return before != after
