"""The command `warren`: finds the subcommand and runs it.

A subcommand's module is imported when the subcommand is named, so that `warren serve` does not wait for the
others, nor `warren --help` for any.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from warren.version import __version__


@dataclass(frozen=True)
class Entry:
    """What is known of a subcommand before its module is imported."""

    module: str
    name: str
    """Of the click command in its module."""
    about: str


SECTIONS = {
    "Run": {
        "serve": Entry("serve", "serve", "run the broker"),
        "config": Entry("config", "config", "check and show settings"),
        "store": Entry("store", "store", "look into a data directory"),
        "cluster": Entry("cluster", "cluster", "status, shards, drain, undrain, move, remove; demo"),
        "perf": Entry("perf", "perf", "load any AMQP 0-9-1 broker and measure it"),
        "pipeline": Entry("pipeline", "pipeline", "run jobs over queues and streams on Spark"),
        "import": Entry("moving", "import_", "move in from another broker"),
    },
    "Watch": {
        "status": Entry("health", "status", "the broker at a glance"),
        "health": Entry("health", "health", "run health checks"),
        "top": Entry("top", "top", "a live view of queues and connections"),
        "log": Entry("log", "log", "follow the broker's log"),
        "events": Entry("events", "events", "follow the broker's events"),
        "trace": Entry("trace", "trace", "switch the firehose of a vhost"),
        "whoami": Entry("health", "whoami", "the user that commands log in as"),
    },
    "Messages": {
        "publish": Entry("messages", "publish", "publish a message"),
        "get": Entry("messages", "get", "get messages of a queue"),
        "peek": Entry("messages", "peek", "look at messages without consuming them"),
        "purge": Entry("queues", "purge", "delete all messages of a queue"),
        "move": Entry("messages", "move", "move messages to another queue"),
        "copy": Entry("messages", "copy", "copy messages to another queue"),
        "delete-messages": Entry("messages", "delete_messages", "delete some messages of a queue"),
        "pause": Entry("messages", "pause", "stop the deliveries of a queue"),
        "resume": Entry("messages", "resume", "go on with the deliveries of a queue"),
    },
    "Objects": {
        "queues": Entry("queues", "queues", "ls, show, declare, delete, purge"),
        "exchanges": Entry("exchanges", "exchanges", "ls, show, declare, delete, publish"),
        "bindings": Entry("bindings", "bindings", "ls, add, rm"),
        "connections": Entry("connections", "connections", "ls, show, close"),
        "channels": Entry("connections", "channels", "ls, show"),
        "consumers": Entry("connections", "consumers", "ls"),
        "vhosts": Entry("vhosts", "vhosts", "ls, show, add, delete"),
        "users": Entry("users", "users", "ls, show, add, delete, passwd, tags"),
        "permissions": Entry("permissions", "permissions", "ls, set, clear"),
        "topic-permissions": Entry("permissions", "topic_permissions", "ls, set, clear"),
        "policies": Entry("policies", "policies", "ls, show, set, delete; --operator"),
        "limits": Entry("limits", "limits", "ls, set, clear; of vhosts and users"),
        "shovels": Entry("shovels", "shovels", "ls, show, declare, delete, restart"),
        "parameters": Entry("parameters", "parameters", "ls, set, delete"),
        "global-parameters": Entry("parameters", "global_parameters", "ls, set, delete"),
        "federation": Entry("federation", "federation", "links, upstreams, upstream-sets"),
        "definitions": Entry("definitions", "definitions", "export, import"),
        "completion": Entry("completion", "completion", "the completion script of a shell"),
    },
}
ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class Subcommands(click.Group):
    """The subcommands of `ENTRIES`, imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = ENTRIES.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(f"warren.cli.{entry.module}"), entry.name)
        assert isinstance(command, click.Command), f"{entry} is a command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.about) for name, entry in section.items()])


@click.group("warren", cls=Subcommands, help="WarrenMQ, a message broker.", no_args_is_help=True)
@click.version_option(__version__, message="warren %(version)s")
def warren() -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; return its exit code. Wrong options end with `SystemExit(2)`."""
    try:
        words = None if arguments is None else list(arguments)
        code = warren.main(words, prog_name="warren", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from error
    except click.Abort:
        return 130
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
