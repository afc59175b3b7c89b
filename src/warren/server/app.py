"""The broker put together from its parts: the only module that knows every concrete class.

async with warren.Broker(port=0) as broker:
    ...  # any AMQP client can connect to broker.host, broker.port
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from warren.amqp.errors import ResourceLocked
from warren.amqp.reader import ReadBuffer
from warren.broker import commands
from warren.broker.changes import Applied
from warren.broker.events import Event
from warren.broker.exchange.types import exchange_types
from warren.broker.node import Limits, Node
from warren.broker.passwords import SALT_BYTES, PasswordHash, hash_password
from warren.server.address import Address
from warren.server.audit import AuditLog
from warren.server.authenticators import Authenticators
from warren.server.churn import Churn
from warren.server.cluster.part import ClusterPart, load_cluster
from warren.server.collector import without_collector
from warren.server.config import GUEST, HTTP_OFF, HTTP_PORT, Config, UserConfig
from warren.server.config_error import ConfigError
from warren.server.descriptors import Descriptors, descriptors_max
from warren.server.disk_space import DiskSpace
from warren.server.doorway import Manners
from warren.server.event_stream import EventStream
from warren.server.farewell import Farewells
from warren.server.listeners import AMQP, AMQPS, HTTP, HTTPS, PROMETHEUS, Listeners, OpenPort
from warren.server.log import get_logger, log_events, set_level
from warren.server.log_tail import LogTail
from warren.server.measured import measure_tasks
from warren.server.memory import MemoryAlarm, MemoryUse, ResidentMemory, share_in_bytes
from warren.server.metrics import Metric, Metrics
from warren.server.node_figures import NodeFigures
from warren.server.protocol import AmqpProtocol
from warren.server.proxy_header import ProxyHeader
from warren.server.resources import Resources
from warren.server.sampler import Sampler
from warren.server.services import Service, load_service
from warren.server.store_runner import StoreRunner
from warren.server.tls import Tls
from warren.server.watchdog import BEAT_SECONDS
from warren.server.world import LoopWorld
from warren.session.connection import connections_of
from warren.storage.store import StorageSettings
from warren.version import __version__

E = TypeVar("E", bound=Event)
Change: TypeAlias = Callable[[commands.Command], Awaitable[None]]

CHECK_SECONDS = 0.5
RESOURCES_CHECK_SECONDS = 1.0
CONSUMERS_CHECK_SECONDS = 1.0
MEMORY_BACK_SECONDS = 1.0
READY_SHARE = 4  # ready messages may take 1/4 of the memory for messages
SERVICES_THAT_LISTEN = ("http", "prometheus")  # their ports are among those of `Listeners`
STOP_SECONDS_MAX = 5.0
STOP_REASON = "broker forced connection closure with reason 'shutdown'"


class Broker:
    """One node that listens. Its settings are a `Config`, or fields of one by name; given by name, there is
    no HTTP API unless `http_port` is among them. `memory_use` is given if the process is all broker.
    """

    def __init__(
        self, config: Config | None = None, memory_use: MemoryUse | None = None, **settings: Any
    ) -> None:
        self.config = config or Config(**{"http_port": HTTP_OFF} | settings)
        self.memory_alarm = MemoryAlarm(
            memory_use or ResidentMemory(), share_in_bytes(self.config.memory_watermark)
        )
        self.is_whole_process = memory_use is not None
        self.log = get_logger()
        self.metrics = Metrics()
        self.services: dict[str, Service] = {}  # what runs beside AMQP, by name
        self.end_log: Callable[[], None] = lambda: None  # ends the logging of events
        self.settings_checks: list[Callable[[Config], None]] = []
        """Called on SIGHUP with new settings, before these hold. `ConfigError` keeps the old ones."""
        self.on_reload: list[Callable[[], None]] = []
        """For who has more to read again on SIGHUP, from the start. Called when new settings hold."""
        self.cluster: ClusterPart | None = None  # None for a broker that is alone
        self.event_stream: EventStream | None = None  # None unless the setting `events_stream` is on
        self.stopping = True  # or not started, or stopped: `stop` has nothing to do

    def __repr__(self) -> str:
        return f"<Broker {'not running' if getattr(self, 'stopping', True) else self.address}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def host(self) -> str:
        return self._first_port.host

    @property
    def port(self) -> int:
        return self._first_port.port

    @property
    def address(self) -> str:
        return self._first_port.address

    @property
    def url(self) -> str:
        scheme = "amqp" if self._first_port.protocol == AMQP else "amqps"
        return f"{scheme}://guest:guest@{self.address}/"

    @property
    def _first_port(self) -> OpenPort:
        """The first for AMQP without TLS; or with TLS, if there is no other."""
        return [*self.listeners.of(AMQP), *self.listeners.of(AMQPS)][0]

    def addresses(self) -> dict[str, str]:
        """Where it listens, by the scheme of URLs; several addresses of one scheme have commas between."""
        found: dict[str, str] = {}
        for protocol in (AMQP, AMQPS, HTTP, HTTPS, PROMETHEUS):
            for port in self.listeners.of(protocol):
                before = found.get(port.scheme)
                found[port.scheme] = port.address if before is None else f"{before},{port.address}"
        others = {n: each.address for n, each in self.services.items() if n not in SERVICES_THAT_LISTEN}
        return found | {name: address for name, address in others.items() if address}

    def uptime_ms(self) -> int:
        return int(1000 * (self.world.now() - self.started))

    def set_log_level(self, level: str) -> None:
        """Set the level of the logger that all brokers of the process share, and log by it from now on."""
        self.end_log()
        set_level(level)
        self.end_log = log_events(self.log, self.node.events)

    def subscribe(self, kind: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        """Call back for every event of a kind. Returns a function that ends the subscription."""
        return self.node.events.subscribe(kind, callback)

    def execute(self, command: commands.Command) -> None:
        """Change vhosts, users, permissions, limits, policies, exchanges, queues, bindings or tracing. In a
        cluster, which has to agree on changes, use `change`.
        """
        self.node.execute(command)
        self.node.end_turn()

    async def change(self, command: commands.Command) -> None:
        """The same, in a cluster, too: on all its nodes."""
        made: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.node.change(command, lambda applied: None if made.done() else made.set_result(applied))
        applied = made.result() if made.done() else await made
        if applied.error is not None:
            raise applied.error

    async def start(self) -> None:
        """Start the broker. A start that fails for any reason leaves no thread, lock, socket or task."""
        self.loop = asyncio.get_running_loop()
        self.services, self.on_reload, self.event_stream, self.cluster = {}, [], None, None
        self.log_tail = LogTail(self.loop)
        self.log_tail.attach()
        self.world = LoopWorld(self.loop, self.log)
        if self.is_whole_process:
            measure_tasks(self.loop, self.world.watchdog)
        self.started = self.world.now()  # for `uptime_ms`
        self.descriptors = Descriptors(
            descriptors_max(), self.config.open_files_max, self.log, self.world.now
        )
        self.storage = StoreRunner(self._storage_settings(), self.world, self.log)  # runs the store
        self.store = self.storage.store
        self.descriptors.share_with(self.store.files)
        self.farewells = Farewells(self.world.now)
        self.audit_log = AuditLog(self.world)
        self.authenticators = Authenticators(self.world.report)
        self.listeners = Listeners(self.loop, self.descriptors, self.log)
        self.read_buffer = ReadBuffer()  # all connections receive into it
        try:
            await self._start()
        except BaseException:
            await self.listeners.close()
            await self._stop_services()
            await self.authenticators.stop()
            await self._stop_cluster()
            self.audit_log.stop()
            await self.storage.close()
            self.world.close()
            self.log_tail.detach()
            raise
        self.stopping = False
        self.log.info("broker started", bind=self.host, port=self.port)

    async def _start(self) -> None:
        """Listening comes last, so that no client sees a broker whose start fails."""
        settings = self.config.tls()
        self.tls = None if settings is None else Tls(settings)
        self.disk_space = DiskSpace(self.config.data_dir, self.config.disk_free_limit)
        clustering = self.config.clustering()
        name = self.config.cluster_name if clustering is None else clustering.node
        self.node = Node(self.world, self._limits(), exchange_types(), name, self.store)
        self.node.cluster_name = self.config.cluster_name if clustering is None else clustering.name
        self.resources = Resources(
            self.node, self.memory_alarm, self.disk_space, lambda: self.store.is_failing
        )
        self.storage.attach(self.node, self.resources)
        self.resources.add_metrics(self.metrics)
        self.world.watchdog.add_metrics(self.metrics)
        self.storage.add_metrics(self.metrics)
        self.descriptors.add_metrics(self.metrics)
        self._add_metrics()
        self.node.turns.look_around = self.resources.check_memory
        self.on_reload.append(self._set_watermarks)
        # What is read back from the data directory is not new: of that, only warnings are for the log.
        self.end_log = log_events(self.log, self.node.events, least=logging.WARNING)
        self.audit_log.start(self.config.audit_log, self.node.events)
        await self._recover()
        self.churn = Churn(self.node.events)
        self.figures = NodeFigures(self.node, self.memory_alarm.use, self.disk_space, self.storage)
        self.sampler = Sampler(self.node, self.churn, self.figures)
        await self.authenticators.start(self)
        self._start_event_stream()
        await self._listen()
        if self.cluster is not None:
            await self.cluster.listens(self.addresses(), __version__)
        self.chores = [  # these run until `stop`
            asyncio.create_task(self._repeat(CHECK_SECONDS, self._check_liveness)),
            asyncio.create_task(self._repeat(RESOURCES_CHECK_SECONDS, self.resources.check)),
            asyncio.create_task(self._repeat(MEMORY_BACK_SECONDS, self._give_back_memory)),
            asyncio.create_task(self._repeat(RESOURCES_CHECK_SECONDS, self.store.tidy)),
            asyncio.create_task(self._repeat(CONSUMERS_CHECK_SECONDS, self._check_consumers)),
            asyncio.create_task(self._beat()),
            asyncio.create_task(self.sampler.run()),
        ]

    def _add_metrics(self) -> None:
        self.metrics.add(
            Metric(
                name="rabbitmq_erlang_uptime_seconds",
                text="Node uptime",
                read=lambda: self.uptime_ms() / 1000,
            )
        )
        text = "Number of peers in the cluster the current node cannot reach"
        self.metrics.add(Metric(name="rabbitmq_unreachable_cluster_peers_count", text=text, read=lambda: 0))

    def _start_event_stream(self) -> None:
        if self.config.events_stream:
            self.event_stream = EventStream(self.node, self.config.events_sample)
            self.event_stream.start()

    async def _listen(self) -> None:
        """Start services first: once a client can connect, all of the broker is there."""
        self.services["relays"] = load_service("relays")(self)
        await self.services["relays"].start()
        if self.config.http_addresses() or self.config.https_addresses():
            await self._start_http()
        if self.config.otel_endpoint:
            self.services["otel"] = load_service("otel")(self)
            await self.services["otel"].start()
        if self.config.prometheus_addresses():
            self.services["prometheus"] = load_service("prometheus")(self)
            await self.services["prometheus"].start()
        for address in self.config.amqp_addresses():
            await self.listeners.add(AMQP, address, self._manners(address, None))
        for address in self.config.amqps_addresses():
            await self.listeners.add(AMQPS, address, self._manners(address, self.tls))

    def _manners(self, address: Address, tls: Tls | None) -> Manners:
        return Manners(
            make_protocol=lambda header: self._make_protocol(tls, header),
            tls=tls,
            proxy_protocol=address.is_proxied(self.config.proxy_protocol),
        )

    def _make_protocol(self, tls: Tls | None, header: ProxyHeader | None) -> AmqpProtocol:
        return AmqpProtocol(
            self.node,
            self.read_buffer,
            self.config.receive_buffer_bytes,
            descriptors=self.descriptors,
            farewells=self.farewells,
            watchdog=self.world.watchdog,
            after_read=self.storage.after_read,
            tls=tls,
            header=header,
        )

    async def _start_http(self) -> None:
        """If the default port is in use, and no other port was chosen, the broker runs without an HTTP API:
        so a second broker can start on one machine.
        """
        self.services["http"] = load_service("http")(self)
        try:
            await self.services["http"].start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or self._names_http_addresses():
                raise
            self.log.warning("no HTTP API: its default port is in use", error=error.strerror)
            await self.services.pop("http").stop()

    def _names_http_addresses(self) -> bool:
        config = self.config
        return bool(config.http_port != HTTP_PORT or config.http_listeners or config.https_addresses())

    async def _stop_services(self) -> None:
        for service in self.services.values():
            try:
                await service.stop()
            except Exception as error:  # noqa: BLE001 - a service that fails must not keep the rest running
                self.world.report(error)

    async def _stop_cluster(self) -> None:
        if self.cluster is not None:
            await self.cluster.stop()
            self.node.proposer = None

    async def stop(self) -> None:
        """Close every connection with 320, wait a little for the answers, write all to disk, and end. What
        other nodes of a cluster can lead they lead before that.
        """
        if self.stopping:
            return
        self.stopping = True
        if self.cluster is not None:
            await self.cluster.hand_over()
        await self.listeners.close()
        for chore in self.chores:
            chore.cancel()
        await asyncio.gather(*self.chores, return_exceptions=True)
        await self._stop_services()
        for connection in connections_of(self.node):
            connection.force_close(STOP_REASON)
        await self._all_closed()
        for connection in connections_of(self.node):
            connection.drop("the broker stops")
        self.farewells.end()
        await self.authenticators.stop()
        if self.event_stream is not None:
            self.event_stream.stop()
        await self._stop_cluster()
        for vhost in self.node.vhosts.values():
            for queue in vhost.all_queues():
                queue.release_memory()
        await self.storage.close()
        self.audit_log.stop()
        self.world.close()
        self.log.info("broker stopped")
        self.log_tail.detach()

    def _storage_settings(self) -> StorageSettings:
        config = self.config
        return StorageSettings(
            path=config.data_dir,
            sync=config.sync == "always",
            segment_bytes=config.segment_bytes,
            stream_segment_bytes=config.stream_segment_bytes,
            open_files_max=config.open_files_max,
        )

    async def _recover(self) -> None:
        """Restore the node from the data directory, then add the definitions of the configuration."""
        with without_collector():
            recovered = await self.storage.recover()
            self.node.restore(recovered)
        self.end_log()
        self.end_log = log_events(self.log, self.node.events)
        self.storage.start()
        clustering = self.config.clustering()
        if clustering is not None:
            self.cluster = load_cluster()(self.node, clustering, self.config.data_dir, self.log)
            await self.cluster.start(recovered, self.store)
            self.cluster.operations.add_metrics(self.metrics)
        await self.make_definitions(self.config, self._change_at_last)

    async def _all_closed(self) -> None:
        """Wait until the last client has answered, at most `STOP_SECONDS_MAX`."""
        last_one = asyncio.Event()
        self.node.when_last_client_ends(last_one.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(last_one.wait(), STOP_SECONDS_MAX)

    def _limits(self) -> Limits:
        config = self.config
        return Limits(
            channel_max=config.channel_max,
            frame_max=config.frame_max,
            heartbeat_seconds=config.heartbeat,
            message_bytes_max=config.max_message_bytes,
            transaction_messages_max=config.max_transaction_messages,
            transaction_bytes_max=config.max_transaction_bytes,
            memory_budget_bytes=share_in_bytes(config.memory_budget),
            ready_budget_bytes=self._ready_budget_bytes(),
            consumer_timeout_ms=config.consumer_timeout,
            connections_max=self.descriptors.connections_max,
            loopback_users=frozenset(config.loopback_users),
            login_failures_free=config.login_failures_free,
            login_delay_seconds_max=config.login_delay_max,
        )

    def _ready_budget_bytes(self) -> int:
        config = self.config
        return min(map(share_in_bytes, (config.memory_budget, config.memory_watermark))) // READY_SHARE

    def _set_watermarks(self) -> None:
        """SIGHUP may have changed them; alarms follow at once, and queues give up what is too much now."""
        self.memory_alarm.limit_bytes = share_in_bytes(self.config.memory_watermark)
        memory = self.node.memory
        memory.ready_limit_bytes = self._ready_budget_bytes()
        if memory.lent_bytes > memory.ready_limit_bytes:
            memory.call_in()
        self.disk_space.set_limit(self.config.disk_free_limit)
        self.resources.check()

    async def _change_at_last(self, command: commands.Command) -> None:
        """In a cluster a start waits for etcd, however long that takes."""
        while True:
            try:
                await self.change(command)
            except ResourceLocked as error:
                if self.cluster is None:
                    raise
                self.log.warning("waiting for etcd", reason=error.text)
            else:
                return

    async def make_definitions(self, config: Config, change: Change | None = None) -> None:
        """Make what the configuration names. The user guest is only made in a new data directory."""
        change = change or self.change
        is_new = not self.node.users
        made: tuple[commands.PutPolicy | commands.SetVhostLimits, ...] = (
            *config.policies,
            *config.operator_policies,
            *config.vhost_limits,
        )
        vhosts = {*self.node.vhosts, *config.vhosts}
        for command in made:
            if command.vhost not in vhosts:
                raise ConfigError(f"there is no vhost '{command.vhost}' for a policy or limits")
        for name in config.vhosts:
            await change(commands.AddVhost(name=name))
        for command in made:
            await change(command)
        for user in config.users:
            if is_new or user is not GUEST:
                await self._make_user(user, change)

    async def _make_user(self, user: UserConfig, change: Change) -> None:
        hashed = user.password_hash
        if hashed is None and user.password is not None:
            hashed = await self.loop.run_in_executor(self.world.threads, self._hash_of, user)
        await change(commands.PutUser(name=user.name, password=hashed, tags=user.tags))
        for vhost, permissions in user.permissions.items():
            granting = commands.SetPermissions(user=user.name, vhost=vhost, permissions=permissions)
            await change(granting)
        if user.limits is not None:
            await change(user.limits)
        for (vhost, exchange), topics in user.topic_permissions.items():
            await change(
                commands.SetTopicPermissions(
                    user=user.name, vhost=vhost, exchange=exchange, permissions=topics
                )
            )

    def _hash_of(self, user: UserConfig) -> PasswordHash:
        """The hash that the node has, if the password is still the same; else a new one."""
        assert user.password is not None, "a user whose password is to be hashed has one"
        known = self.node.users.get(user.name)
        if known is not None and known.password is not None and known.password.verify(user.password.encode()):
            return known.password
        return hash_password(user.password, self.world.random_bytes(SALT_BYTES))

    # --- chores ---

    async def _repeat(self, seconds: float, chore: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                self.world.watchdog.run(chore)
            except Exception as error:  # noqa: BLE001 - one failed round must not end the chore
                self.world.report(error)

    async def _beat(self) -> None:
        watchdog = self.world.watchdog
        watchdog.start()
        try:
            while True:
                due = watchdog.now() + BEAT_SECONDS
                await asyncio.sleep(BEAT_SECONDS)
                watchdog.beat(due)
        finally:
            watchdog.stop()

    def _check_liveness(self) -> None:
        now = self.world.now()
        for connection in connections_of(self.node):
            connection.liveness.check(connection, now)
        self.farewells.check()
        self.node.end_turn()

    def _check_consumers(self) -> None:
        self.node.check_consumers()
        self.node.end_turn()

    def _give_back_memory(self) -> None:
        """Give half of the idle memory back to the system, in a thread, since it takes a while."""
        idle = self.memory_alarm.use.idle_bytes()
        if idle:
            self.loop.run_in_executor(None, self.memory_alarm.use.give_back, (idle + 1) // 2)
