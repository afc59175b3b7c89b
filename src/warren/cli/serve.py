"""`warren serve`: run the broker until SIGTERM or Ctrl-C. SIGHUP makes it read its settings again."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable

import click
import uvloop

from warren.server import log
from warren.server.app import Broker
from warren.server.collector import begin_process, tune_process
from warren.server.config import Config, load
from warren.server.config_error import ConfigError
from warren.server.memory import count_memory
from warren.server.reload import Reload
from warren.server.systemd import Systemd

USAGE_ERROR = 2


@click.command("serve")
@click.option("--config", metavar="FILE", help="settings in TOML (default: warren.toml, if there is one)")
@click.option("--data-dir", metavar="DIR", help="where the broker keeps its data (./warren-data)")
@click.option("--bind", metavar="ADDR", help="the address to listen on (127.0.0.1)")
@click.option("--port", metavar="N", help="the port for AMQP, 0 for any free one (5672)")
@click.option(
    "--http-port", metavar="N", help="the port for the HTTP API, 0 for any free one, -1 for none (15672)"
)
@click.option("--prometheus-port", metavar="N", help="a port for metrics alone, without a login (-1: none)")
@click.option(
    "--listeners", metavar="ADDR,…", help="host:port for AMQP, one or more, in place of --bind and --port"
)
@click.option("--tls-cert", metavar="FILE", help="the certificate for TLS (no TLS)")
@click.option("--tls-key", metavar="FILE", help="its key, unless that is in the same file")
@click.option("--tls-port", metavar="N", help="the port for AMQP with TLS, -1 for none (5671)")
@click.option("--http-tls-port", metavar="N", help="the port for the HTTP API with TLS (none)")
@click.option("--cluster", metavar="NAME", help="the cluster that this node is in (none: it is alone)")
@click.option("--node", "cluster_node", metavar="NAME", help="the name of this node in the cluster")
@click.option("--etcd", "cluster_etcd", metavar="URL,…", help="the cluster's etcd, or 'local' to run one")
@click.option("--advertise", "cluster_advertise", metavar="ADDR", help="host[:port] by which clients find it")
@click.option("--peers-bind", "cluster_peers_bind", metavar="ADDR", help="host:port for nodes of the cluster")
@click.option("--peers-advertise", "cluster_peers_advertise", metavar="ADDR", help="host[:port] for the same")
@click.option("--secret-file", "cluster_secret_file", metavar="FILE", help="has the secret that nodes share")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error (info)")
def serve(**flags: str | None) -> int:
    """Run the broker. Settings come from flags, else from the environment (WARREN_…), else from warren.toml,
    else they have their defaults.
    """
    try:
        config = load(flags)
        log.configure(config.log_level)
        uvloop.run(run_broker(config, lambda: load(flags)))
    except ConfigError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(str(error) if error.filename else error.strerror or str(error))
    return 0


def _fail(text: str) -> int:
    sys.stderr.write(f"warren serve: {text}\n")
    return USAGE_ERROR


async def run_broker(config: Config, read_settings: Callable[[], Config]) -> None:
    """`read_settings` is called on SIGHUP."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    reload_wanted = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, reload_wanted.set)  # which would end a broker that starts
    raise_open_files_limit()
    begin_process()
    broker = Broker(config, count_memory())
    if not await start(broker, stopping):
        return
    try:
        await serve_clients(broker, stopping, Reload(broker, read_settings), reload_wanted)
    finally:
        await broker.stop()


async def start(broker: Broker, stopping: asyncio.Event) -> bool:
    """Start the broker; return whether it runs. In a cluster it may have to wait for etcd, and a signal ends
    that.
    """
    starting = asyncio.ensure_future(broker.start())
    if broker.config.cluster:
        signalled = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({starting, signalled}, return_when=asyncio.FIRST_COMPLETED)
        signalled.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return False
    await starting
    return True


async def serve_clients(
    broker: Broker, stopping: asyncio.Event, reloading: Reload, reload_wanted: asyncio.Event
) -> None:
    """Until a signal ends it."""
    loop = asyncio.get_running_loop()
    tune_process()
    loop.add_signal_handler(signal.SIGHUP, reloading.request)
    if reload_wanted.is_set():
        reloading.request()
    addresses = " ".join(f"{name}={address}" for name, address in broker.addresses().items())
    sys.stdout.write(f"ready {addresses}\n")
    sys.stdout.flush()
    systemd = Systemd(os.environ, log.get_logger())
    systemd.ready(f"AMQP on {broker.address}")
    with systemd.watched(loop):
        await stopping.wait()
    systemd.stopping()
    await reloading.stop()


def raise_open_files_limit() -> None:
    """Allow as many open files as the system lets us have: every connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
