"""Who is asked whether a client may log in, in the order of the setting `auth_backends`.

`internal` are the node's own users. All others, `oauth2` among them, are called with the `Broker`, and have
the methods of `Authenticator`. A package can bring one in the entry-point group `warren.authenticators`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, TypeAlias

from warren.broker.login import Check, Credentials, Outcome, Refusal
from warren.server.config import INTERNAL, OAUTH2
from warren.server.config_error import ConfigError

GROUP = "warren.authenticators"
ANSWER_SECONDS_MAX = 10.0
BUILT_IN = EntryPoint(name=OAUTH2, value="warren.server.oauth.backend:oauth2", group=GROUP)


class Authenticator(Protocol):
    """Knows clients. What it raises is reported, and the client is refused."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def authenticate(self, credentials: Credentials) -> Outcome:
        """An `Identity`, or a `Refusal` with a reason for the log; then the next authenticator is asked."""


Factory: TypeAlias = Callable[[Any], Authenticator]
"""Called with the `Broker`: `Any`, since this module is below it and cannot import it."""


class Authenticators:
    """The authenticators of a broker, from its start to its stop."""

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self.report = report
        self.running: list[Authenticator] = []
        self.tasks: set[asyncio.Task[None]] = set()  # clients that are being authenticated

    async def start(self, broker: Any) -> None:
        logins = broker.node.logins
        checks: list[Check] = []
        for name in broker.config.auth_backends:
            if name == INTERNAL:
                checks.append(logins.internal)
                continue
            authenticator = load_authenticator(name)(broker)
            await authenticator.start()
            self.running.append(authenticator)
            checks.append(self._check_by(authenticator))
        logins.checks = tuple(checks)

    async def stop(self) -> None:
        for task in list(self.tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        while self.running:
            await self.running.pop().stop()

    def _check_by(self, authenticator: Authenticator) -> Check:
        def check(credentials: Credentials, done: Callable[[Outcome], None]) -> None:
            task = asyncio.get_running_loop().create_task(self._ask(authenticator, credentials, done))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

        return check

    async def _ask(
        self, authenticator: Authenticator, credentials: Credentials, done: Callable[[Outcome], None]
    ) -> None:
        name = type(authenticator).__name__
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                outcome = await authenticator.authenticate(credentials)
        except TimeoutError:
            outcome = Refusal(f"{name} does not answer")
        except Exception as error:  # noqa: BLE001 - an authenticator may be anybody's
            self.report(error)
            outcome = Refusal(f"{name} failed")
        done(outcome)


def load_authenticator(name: str) -> Factory:
    points = [BUILT_IN] if name == OAUTH2 else list(entry_points(group=GROUP, name=name))
    if not points:
        raise ConfigError(f"auth_backends: there is no authenticator '{name}'")
    try:
        factory: Factory = points[0].load()
    except ImportError as error:
        hint = " (it needs the extra warrenmq[oauth])" if name == OAUTH2 else ""
        raise ConfigError(f"auth_backends: cannot load '{name}'{hint}: {error}") from error
    return factory
