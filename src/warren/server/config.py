"""The settings. A flag wins over the environment, that over `warren.toml`, and that over the default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from warren.broker.access import Permissions, TopicPermissions
from warren.broker.commands import PutPolicy, SetUserLimits, SetVhostLimits
from warren.broker.passwords import SCRYPT, PasswordHash
from warren.broker.rules import TIME_MS_MAX
from warren.server.address import PORT_MAX, Address, addresses
from warren.server.certificate import LOGIN_SOURCES, SAN_TYPES, LoginRule
from warren.server.cluster.settings import ClusterSettings, cluster_settings
from warren.server.config_definitions import (
    StaticShovel,
    expect_known,
    expect_list,
    expect_table,
    names,
    policies,
    shovels,
    user_limits,
    vhost_limits,
)
from warren.server.config_error import ConfigError
from warren.server.oauth.settings import OAuth2Settings, oauth2_settings
from warren.server.tls import VERIFY, VERSIONS, TlsSettings

ENVIRONMENT_PREFIX = "WARREN_"
DEFAULT_FILE = Path("warren.toml")
OFF = HTTP_OFF = -1  # as a port
HTTP_PORT = 15672
TLS_PORT = 5671
TLS_TABLE = "tls"  # in the file `tls_cert` may also be written as `cert` in this table
CLUSTER_TABLE = "cluster"  # in the file `cluster_etcd` may also be written as `etcd` in this table
SAN_INDEX_MAX = 99
SYNC_MODES = ("always", "none")
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 4096, 1024 * 1024 * 1024
OPEN_FILES_MIN, OPEN_FILES_MAX = 16, 10_000_000
BYTES_MAX = 2**60
RECEIVE_BUFFER_BYTES_MAX = 2**30
EVENTS_SAMPLE_MAX = 2**31
TRANSACTION_MESSAGES_MAX = 100_000_000
LOGIN_FAILURES_MAX, LOGIN_DELAY_SECONDS_MAX = 1_000_000, 3_600
CORS_SECONDS_MAX = 86_400
INTERNAL, OAUTH2 = "internal", "oauth2"  # as auth_backends
NO_OAUTH2 = OAuth2Settings()
LOG_LEVELS = ("debug", "info", "warning", "error")
TRUTHS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


@dataclass(frozen=True, kw_only=True)
class UserConfig:
    """A user to make when the broker starts, with a password or a hash of one."""

    name: str
    password: str | None = field(default=None, repr=False)
    password_hash: PasswordHash | None = None  # may be one of RabbitMQ's kinds
    tags: frozenset[str] = frozenset()
    permissions: dict[str, Permissions] = field(default_factory=dict)  # by vhost
    topic_permissions: dict[tuple[str, str], TopicPermissions] = field(default_factory=dict)
    """By vhost and exchange."""
    limits: SetUserLimits | None = None


GUEST = UserConfig(
    name="guest",
    password="guest",  # noqa: S106 - the user that every client tries first, from this machine only
    tags=frozenset({"administrator"}),
    permissions={"/": Permissions(".*", ".*", ".*")},
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings, by their names in `warren.toml`. In the environment `port` is `WARREN_PORT`, and so on.
    Some are flags of `warren serve` as well.
    """

    bind: str = "127.0.0.1"  # the address to listen on
    port: int = 5672  # for AMQP; 0: the kernel chooses one, -1: none, for a broker with TLS only
    listeners: tuple[Address, ...] = ()
    """Addresses to listen on for AMQP, in place of `bind` and `port`: `["127.0.0.1:5672", "[::1]:5672"]`. In
    the file, an entry may be a table with `address` and `proxy_protocol`.
    """
    proxy_protocol: bool = False
    """Whether a proxy in front tells the addresses of AMQP's clients, by the PROXY protocol."""
    http_proxy_protocol: bool = False
    """The same for clients of the HTTP API; not for `prometheus_port`."""
    http_port: int = HTTP_PORT  # for the HTTP API; 0: the kernel chooses one, -1: there is no HTTP API
    prometheus_port: int = HTTP_OFF
    """A port for metrics alone, without a login; 0: the kernel chooses one, -1: none, only `http_port`."""
    http_listeners: tuple[Address, ...] = ()  # addresses for the HTTP API in place of `bind` and `http_port`
    tls_cert: str = ""
    """The file with the certificate for TLS, and those that it is signed with; empty: there is no TLS. In the
    file, `tls_cert` may also be `cert` in the table `tls`, and so may all of these.
    """
    tls_key: str = ""  # the file with its key; empty: the key is in the file of the certificate
    tls_key_password: str = field(default="", repr=False)  # if the key is encrypted
    tls_ca: str = ""  # the file with the certificates that clients' certificates have to be signed with
    tls_crl: str = ""
    """The file with the lists of revoked certificates (CRLs), one of each authority that signs clients'
    certificates; empty: none are revoked.
    """
    tls_verify: str = "none"
    """Whether clients' certificates are not asked for (`none`), verified if shown (`peer`), or required
    (`require`).
    """
    tls_versions: tuple[str, ...] = tuple(VERSIONS)  # the versions that clients may choose from
    tls_ciphers: str = ""  # for TLS 1.2, as OpenSSL writes them; empty: OpenSSL's default
    tls_port: int = TLS_PORT  # for AMQP with TLS, if there is a certificate; 0: the kernel chooses, -1: none
    tls_listeners: tuple[Address, ...] = ()  # addresses for AMQP with TLS in place of `bind` and `tls_port`
    http_tls_port: int = OFF  # for the HTTP API with TLS; 0: the kernel chooses one, -1: none
    http_tls_listeners: tuple[Address, ...] = ()
    """Addresses for the HTTP API with TLS in place of `bind` and `http_tls_port`."""
    tls_login_from: str = "common_name"
    """Which part of a client's certificate names the user who logs in with EXTERNAL: `common_name`,
    `distinguished_name`, `subject_alternative_name`, or `none`: nobody logs in by a certificate.
    """
    tls_login_san_type: str = "dns"  # which alternative names of a certificate: dns, ip, email or uri
    tls_login_san_index: int = 0  # which of those, from 0
    reload_definitions: bool = False
    """Whether SIGHUP also makes the vhosts, users, policies and limits that the file has then, and runs its
    shovels.
    """
    data_dir: Path = Path("warren-data")  # where the broker keeps its data
    cluster_name: str = "warren"  # the name of the cluster, and of its node, as clients and tools see it
    cluster: str = ""
    """The name of the cluster that this node is in; empty: it is alone, and needs no etcd. In the file, this
    may also be `name` in the table `cluster`, `cluster_etcd` may be `etcd` there, and so may all of these.
    """
    cluster_node: str = ""  # the name of this node in the cluster; empty: that of the machine
    cluster_etcd: tuple[str, ...] = ("http://127.0.0.1:2379",)
    """The URLs of etcd's members; `["local"]`: the broker runs an etcd of its own, for a cluster on one
    machine.
    """
    cluster_etcd_user: str = ""  # etcd's user; empty: etcd has no authentication
    cluster_etcd_password: str = field(default="", repr=False)  # of that user
    cluster_etcd_ca: str = ""  # the file with the certificates that etcd's are signed with
    cluster_etcd_cert: str = ""  # the file with our own certificate, if etcd wants one
    cluster_etcd_key: str = ""  # the file with its key; empty: the key is in the file of the certificate
    cluster_advertise: str = ""
    """The `host` or `host:port` by which clients reach this node, as others tell them; empty: where it
    listens. If that is all addresses (`0.0.0.0`): the one from which this machine reaches etcd.
    """
    cluster_http_advertise: str = ""
    """The same for the HTTP API; empty: where it listens. If that is all addresses: the host of
    `cluster_advertise`, or the same as for clients.
    """
    cluster_peers_bind: str = ""
    """The address and port where other nodes of the cluster connect to; empty: the address from which this
    machine reaches etcd, and the kernel chooses a port.
    """
    cluster_peers_advertise: str = ""
    """The `host` or `host:port` by which other nodes reach that; empty: as for the HTTP API."""
    cluster_secret_file: str = ""
    """The file with the secret that all nodes of the cluster share; empty: the first node keeps one in etcd.
    """
    cluster_shards: int = 64  # how many parts the replicated queues are in; fixed when a cluster is made
    cluster_replicas: int = 3  # on how many nodes a replicated queue is; the same on all nodes
    cluster_min_in_sync: int = 2
    """How many of them must have a message before it is confirmed; the same on all nodes."""
    cluster_lease: float = 1.5  # seconds for which a leader may deliver after it last heard of its followers
    cluster_grace: float = 2.5
    """Seconds without a sign of its leader, after which a follower stands for it: on each node at least one
    more than the `cluster_lease` of every other one.
    """
    cluster_replace_after: float = 1_800.0  # seconds after which a node that is gone is replaced
    cluster_replicate: str = "quorum"
    """Which queues are replicated when they are declared: `quorum` for quorum queues and streams, `durable`
    for all other durable queues as well, or `none`. Policies can say otherwise with `replicas`.
    """
    log_level: str = "info"  # debug, info, warning or error
    heartbeat: int = 60  # seconds, as offered to clients; 0: no heartbeats
    channel_max: int = 2047  # how many channels a connection may have
    frame_max: int = 131_072  # the largest frame, in bytes
    max_message_bytes: int = 128 * 1024 * 1024  # the largest message
    max_transaction_messages: int = 1_000_000  # in one AMQP transaction
    max_transaction_bytes: int = 1024 * 1024 * 1024  # the same, of their bodies together
    memory_watermark: float = 0.4
    """With more memory used, publishers are blocked. A share of the machine's memory, or bytes if above 1."""
    memory_budget: float = 0.2
    """What waiting transient messages may take before they go to disk: a share or bytes, too."""
    disk_free_limit: int = 50_000_000  # with fewer free bytes publishers are blocked
    consumer_timeout: int = 1_800_000
    """A channel that has not acknowledged a delivery for so many milliseconds is closed; 0: never."""
    sync: str = "always"
    """What a confirmed persistent message survives: a power cut ("always"), or only the end of the process
    ("none").
    """
    segment_bytes: int = 8 * 1024 * 1024  # a queue's segment is closed at this size
    stream_segment_bytes: int = 32 * 1024 * 1024  # the same for streams
    open_files_max: int = 1_000  # files of queues that are open at a time
    receive_buffer_bytes: int = 512 * 1024
    """What the kernel takes from a publisher whose socket we do not read; 0: the system's default, which may
    be megabytes for each.
    """
    events_stream: bool = False  # whether the broker writes its events to the stream `warren.events`
    events_sample: int = 1_000
    """Of the events about single messages, one in so many of each kind is written to that stream; 0: none."""
    otel_endpoint: str = ""
    """A URL that takes OpenTelemetry's spans (OTLP over HTTP) of messages in sampled traces; empty: none."""
    loopback_users: tuple[str, ...] = ("guest",)  # who may log in from this machine only; "none": nobody
    login_failures_free: int = 10
    """After so many failed logins of an address or a user, the next ones have to wait, longer each time."""
    login_delay_max: int = 60  # seconds that a login has to wait at most; 0: it never has to
    auth_backends: tuple[str, ...] = (INTERNAL,)
    """Who is asked whether a client may log in, in this order: "internal" for the broker's own users,
    "oauth2", or the name of an entry point in the group `warren.authenticators`.
    """
    oauth2: OAuth2Settings = NO_OAUTH2  # for tokens, if "oauth2" is one of these
    http_cors_origins: tuple[str, ...] = ()  # pages of these origins may use the HTTP API; "*": of all
    http_cors_max_age: int = 1_800  # seconds for which a browser may remember that
    audit_log: str = ""  # the file for the audit log; empty: there is none
    vhosts: tuple[str, ...] = ("/",)  # vhosts that are made when the broker starts
    users: tuple[UserConfig, ...] = (GUEST,)  # users that are made when the broker starts
    policies: tuple[PutPolicy, ...] = ()  # policies that are made when the broker starts
    operator_policies: tuple[PutPolicy, ...] = ()  # the same, of operator policies
    vhost_limits: tuple[SetVhostLimits, ...] = ()  # limits that are set when the broker starts
    shovels: tuple[StaticShovel, ...] = ()
    """Static shovels, which run as long as they stand here: tables with `name`, perhaps `vhost`, and the keys
    of RabbitMQ's parameters, such as `src-uri`.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_dir", Path(self.data_dir))  # an embedding program may give a string
        self._check_listeners()
        self._check_tls()
        object.__setattr__(self, "cluster_etcd", tuple(self.cluster_etcd))
        self.clustering()
        _check(0 <= self.heartbeat <= PORT_MAX, "heartbeat", self.heartbeat, "seconds, 0 for none")
        _check(1 <= self.channel_max <= PORT_MAX, "channel_max", self.channel_max, f"1 to {PORT_MAX}")
        _check(4096 <= self.frame_max <= 131_072, "frame_max", self.frame_max, "4096 to 131072")  # noqa: PLR2004
        _check(
            1 <= self.max_message_bytes <= 2**30, "max_message_bytes", self.max_message_bytes, "up to 1 GiB"
        )
        _check(
            1 <= self.max_transaction_messages <= TRANSACTION_MESSAGES_MAX,
            "max_transaction_messages",
            self.max_transaction_messages,
            f"1 to {TRANSACTION_MESSAGES_MAX}",
        )
        _check(
            1 <= self.max_transaction_bytes <= BYTES_MAX,
            "max_transaction_bytes",
            self.max_transaction_bytes,
            "bytes",
        )
        for name in ("memory_watermark", "memory_budget"):
            share = getattr(self, name)
            _check(0 < share <= BYTES_MAX, name, share, "a share of RAM, or bytes")
        _check(0 <= self.disk_free_limit <= BYTES_MAX, "disk_free_limit", self.disk_free_limit, "bytes")
        _check(
            0 <= self.consumer_timeout <= TIME_MS_MAX,
            "consumer_timeout",
            self.consumer_timeout,
            f"milliseconds up to {TIME_MS_MAX}, or 0",
        )
        _check(self.sync in SYNC_MODES, "sync", self.sync, " or ".join(SYNC_MODES))
        for name in ("segment_bytes", "stream_segment_bytes"):
            size = getattr(self, name)
            _check(
                SEGMENT_BYTES_MIN <= size <= SEGMENT_BYTES_MAX,
                name,
                size,
                f"{SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}",
            )
        _check(
            OPEN_FILES_MIN <= self.open_files_max <= OPEN_FILES_MAX,
            "open_files_max",
            self.open_files_max,
            f"{OPEN_FILES_MIN} to {OPEN_FILES_MAX}",
        )
        _check(
            0 <= self.receive_buffer_bytes <= RECEIVE_BUFFER_BYTES_MAX,
            "receive_buffer_bytes",
            self.receive_buffer_bytes,
            f"bytes up to {RECEIVE_BUFFER_BYTES_MAX}, or 0",
        )
        _check(
            0 <= self.events_sample <= EVENTS_SAMPLE_MAX,
            "events_sample",
            self.events_sample,
            f"1 in how many, up to {EVENTS_SAMPLE_MAX}, or 0 for none",
        )
        for name, most in (
            ("login_failures_free", LOGIN_FAILURES_MAX),
            ("login_delay_max", LOGIN_DELAY_SECONDS_MAX),
            ("http_cors_max_age", CORS_SECONDS_MAX),
        ):
            _check(0 <= getattr(self, name) <= most, name, getattr(self, name), f"0 to {most}")
        _check(bool(self.auth_backends), "auth_backends", self.auth_backends, "at least one name")
        if OAUTH2 in self.auth_backends:
            self.oauth2.check()
        _check(
            not self.otel_endpoint or self.otel_endpoint.startswith(("http://", "https://")),
            "otel_endpoint",
            self.otel_endpoint,
            "a URL such as http://collector:4318/v1/traces",
        )
        _check(self.log_level in LOG_LEVELS, "log_level", self.log_level, ", ".join(LOG_LEVELS))

    def _check_listeners(self) -> None:
        for name in ("port", "http_port", "tls_port", "http_tls_port", "prometheus_port"):
            port = getattr(self, name)
            _check(OFF <= port <= PORT_MAX, name, port, f"0 to {PORT_MAX}, or {OFF} for none")
        for name in LISTENER_SETTINGS:  # an embedding program may give texts
            object.__setattr__(self, name, addresses(name, getattr(self, name)))
        if not self.amqp_addresses() and not self.amqps_addresses():
            raise ConfigError(f"port = {OFF}: without TLS, AMQP needs a port")

    def _check_tls(self) -> None:
        _check_choice("tls_verify", self.tls_verify, VERIFY)
        _check_choice("tls_login_from", self.tls_login_from, LOGIN_SOURCES)
        _check_choice("tls_login_san_type", self.tls_login_san_type, SAN_TYPES)
        index = self.tls_login_san_index
        _check(0 <= index <= SAN_INDEX_MAX, "tls_login_san_index", index, f"0 to {SAN_INDEX_MAX}")
        object.__setattr__(self, "tls_versions", tuple(self.tls_versions))
        _check(bool(self.tls_versions), "tls_versions", self.tls_versions, ", ".join(VERSIONS))
        for version in self.tls_versions:
            _check_choice("tls_versions", version, VERSIONS)
        if not self.tls_cert:
            for name in ("tls_key", "tls_ca", "tls_crl", "tls_listeners", "http_tls_listeners"):
                if getattr(self, name):
                    raise ConfigError(f"{name} is set, but tls_cert is not")
            if self.http_tls_port != OFF:
                raise ConfigError("http_tls_port is set, but tls_cert is not")
        if self.tls_verify != "none" and not self.tls_ca:
            raise ConfigError(f"tls_verify = {self.tls_verify!r} needs tls_ca, to verify certificates with")
        if self.tls_crl and self.tls_verify == "none":
            raise ConfigError("tls_crl is set, but tls_verify = 'none': no certificate is looked at")

    def tls(self) -> TlsSettings | None:
        """None for a broker without TLS."""
        if not self.tls_cert:
            return None
        return TlsSettings(
            cert=self.tls_cert,
            key=self.tls_key or self.tls_cert,
            key_password=self.tls_key_password,
            ca=self.tls_ca,
            crl=self.tls_crl,
            verify=self.tls_verify,
            versions=self.tls_versions,
            ciphers=self.tls_ciphers,
            login=LoginRule(self.tls_login_from, self.tls_login_san_type, self.tls_login_san_index),
        )

    def clustering(self) -> ClusterSettings | None:
        """None for a broker that is alone."""
        return cluster_settings(self)

    # --- where to listen ---

    def amqp_addresses(self) -> tuple[Address, ...]:
        return self._addresses(self.listeners, self.port)

    def amqps_addresses(self) -> tuple[Address, ...]:
        return self._addresses(self.tls_listeners, self.tls_port if self.tls_cert else OFF)

    def http_addresses(self) -> tuple[Address, ...]:
        return self._addresses(self.http_listeners, self.http_port)

    def https_addresses(self) -> tuple[Address, ...]:
        return self._addresses(self.http_tls_listeners, self.http_tls_port)

    def prometheus_addresses(self) -> tuple[Address, ...]:
        return self._addresses((), self.prometheus_port)

    def _addresses(self, listed: tuple[Address, ...], port: int) -> tuple[Address, ...]:
        """Those that are listed, or else the one address of `bind` and this port."""
        if listed or port == OFF:
            return listed
        return (Address(self.bind, port),)


def _check(right: bool, name: str, value: object, expected: str) -> None:
    if not right:
        raise ConfigError(f"{name} = {value!r}: expected {expected}")


def _check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    _check(value in choices, name, value, ", ".join(choices))


def load(flags: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Config:
    """Read the settings from all places. `flags` are those of the command line; `config` names the file."""
    return replace(
        Config(), **{name: given.value for name, given in given_settings(flags, environment).items()}
    )


class Given(NamedTuple):
    """A setting that was given, and where."""

    value: Any
    place: str  # such as `--port` or `WARREN_PORT`, or the path of the file


def given_settings(
    flags: Mapping[str, object], environment: Mapping[str, str] = os.environ
) -> dict[str, Given]:
    """The settings that differ from their defaults or repeat them, by name."""
    named = flags.get("config") or environment.get(ENVIRONMENT_PREFIX + "CONFIG")
    path = Path(str(named)) if named else DEFAULT_FILE
    found = {name: Given(value, str(path)) for name, value in _from_file(path, required=bool(named)).items()}
    for name, value in _from_environment(environment).items():
        found[name] = Given(value, ENVIRONMENT_PREFIX + name.upper())
    for name, value in flags.items():
        if name != "config" and value is not None:
            found[name] = Given(value, "--" + name.replace("_", "-"))
    return {name: Given(_convert(name, given.value), given.place) for name, given in found.items()}


def _from_file(path: Path, *, required: bool) -> dict[str, Any]:
    if not required and not path.exists():
        return {}
    try:
        settings = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read {path}: {reason}") from error
    settings |= _from_tls_table(settings.pop(TLS_TABLE, {}))
    settings |= _from_cluster_table(settings.pop(CLUSTER_TABLE, {}))
    unknown = settings.keys() - {f.name for f in fields(Config)}
    if unknown:
        raise ConfigError(f"{path}: unknown setting {', '.join(sorted(unknown))}")
    return settings


def _from_tls_table(value: object) -> dict[str, Any]:
    table = expect_table(TLS_TABLE, value)
    return {f"{TLS_TABLE}_{name}": each for name, each in table.items()}


def _from_cluster_table(value: object) -> dict[str, Any]:
    if isinstance(value, str):  # the name alone
        return {CLUSTER_TABLE: value}
    table = expect_table(CLUSTER_TABLE, value)
    named = {CLUSTER_TABLE: table["name"]} if "name" in table else {}
    return named | {f"{CLUSTER_TABLE}_{name}": each for name, each in table.items() if name != "name"}


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    names = {ENVIRONMENT_PREFIX + f.name.upper(): f.name for f in fields(Config)}
    return {names[key]: value for key, value in environment.items() if key in names}


def _convert(name: str, value: object) -> object:
    """The value of a setting, given as text or TOML, as the type of its default."""
    if name in READERS:
        return READERS[name](name, value)
    default = getattr(Config, name)
    if isinstance(default, bool):
        return _truth(name, value)
    kind: Callable[[Any], object] = Path if isinstance(default, Path) else type(default)
    wrong = ConfigError(f"{name} = {value!r}: expected {type(default).__name__}")
    if isinstance(value, bool) or (kind is int and isinstance(value, float)):
        raise wrong
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong from None


def _truth(name: str, value: object) -> bool:
    found = TRUTHS.get(str(value).lower())
    if found is None:
        raise ConfigError(f"{name} = {value!r}: expected true or false")
    return found


USER_KEYS = {
    "name",
    "password",
    "password_hash",
    "hashing_algorithm",
    "tags",
    "permissions",
    "topic_permissions",
    "limits",
}


def _user(entry: object) -> UserConfig:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ConfigError("users: each user needs a name")
    where = f"user '{entry['name']}'"
    expect_known(where, entry, USER_KEYS)
    if not isinstance(entry.get("password", ""), str):
        raise ConfigError(f"{where}: the password must be a string")
    try:
        hashed = entry.get("password_hash")
        return UserConfig(
            name=entry["name"],
            password=entry.get("password"),
            password_hash=PasswordHash(entry.get("hashing_algorithm", SCRYPT), hashed) if hashed else None,
            tags=frozenset(expect_list(f"{where}: tags", entry.get("tags", []))),
            permissions={v: Permissions(**p) for v, p in entry.get("permissions", {}).items()},
            topic_permissions={
                (vhost, exchange): TopicPermissions(**patterns)
                for vhost, exchanges in entry.get("topic_permissions", {}).items()
                for exchange, patterns in exchanges.items()
            },
            limits=user_limits(entry["name"], entry["limits"]) if "limits" in entry else None,
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error


LISTENER_SETTINGS = ("listeners", "tls_listeners", "http_listeners", "http_tls_listeners")
READERS: dict[str, Callable[[str, object], object]] = {  # of settings that are lists or tables
    "users": lambda name, value: tuple(_user(entry) for entry in expect_list(name, value)),
    "vhosts": lambda name, value: tuple(str(vhost) for vhost in expect_list(name, value)),
    "policies": policies,
    "operator_policies": policies,
    "vhost_limits": lambda _name, value: vhost_limits(value),
    "shovels": shovels,
    "loopback_users": names,
    "auth_backends": names,
    "http_cors_origins": names,
    "oauth2": oauth2_settings,
    "tls_versions": names,
    "cluster_etcd": names,
    **dict.fromkeys(LISTENER_SETTINGS, addresses),
}
