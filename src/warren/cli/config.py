"""`warren config`: check a file of settings, show the settings in force, print the reference of all."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields

from warren.server.config import Config, Given, given_settings, load
from warren.server.config_error import ConfigError
from warren.server.config_reference import as_markdown, in_toml
from warren.server.tls import make_context

WRONG = 2
DEFAULT = "default"
HAS_SECRETS = ("tls_key_password", "users")  # settings whose values are not shown


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("config", help="check and show settings")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    check = commands.add_parser("check", help="check a file of settings, and tell what is wrong")
    check.add_argument("file", nargs="?", help="the file (default: warren.toml, if there is one)")
    check.set_defaults(run=run_check)
    show = commands.add_parser("show", help="show the settings in force, and where each comes from")
    show.add_argument(
        "--config", metavar="FILE", help="settings in TOML (default: warren.toml, if there is one)"
    )
    show.add_argument("--json", action="store_true", help="as JSON")
    show.set_defaults(run=run_show)
    reference = commands.add_parser("reference", help="print the reference of all settings, as Markdown")
    reference.set_defaults(run=run_reference)


def run_check(options: argparse.Namespace) -> int:
    try:
        tls = load({"config": options.file}).tls()
        if tls is not None:
            make_context(tls)  # reads the certificates
    except ConfigError as error:
        sys.stderr.write(f"warren config check: {error}\n")
        return WRONG
    sys.stdout.write("all settings are right\n")
    return 0


def run_show(options: argparse.Namespace) -> int:
    flags = {"config": options.config}
    try:
        given, config = given_settings(flags), load(flags)
    except ConfigError as error:
        sys.stderr.write(f"warren config show: {error}\n")
        return WRONG
    settings = {field.name: _shown(config, field.name, given) for field in fields(Config)}
    if options.json:
        rows = {name: {"value": value, "from": place} for name, (value, place) in settings.items()}
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        for name, (value, place) in settings.items():
            sys.stdout.write(f"{name} = {value}  # {place}\n")
    return 0


def _shown(config: Config, name: str, given: dict[str, Given]) -> tuple[str, str]:
    value = getattr(config, name)
    place = given[name].place if name in given else DEFAULT
    if name in HAS_SECRETS:
        hidden = ("set" if value else "not set") if isinstance(value, str) else f"{len(value)} of them"
        return f"[{hidden}]", place
    return in_toml(value), place


def run_reference(_options: argparse.Namespace) -> int:
    sys.stdout.write(as_markdown())
    return 0
