"""`warren config`: check a file of settings, show the settings in force, print the reference of all."""

from __future__ import annotations

import json
import sys
from dataclasses import fields

import click

from warren.relay.static_shovels import static_shovels
from warren.server.audit import check_audit_log
from warren.server.authenticators import load_authenticator
from warren.server.config import INTERNAL, Config, Given, given_settings, load
from warren.server.config_error import ConfigError
from warren.server.config_reference import as_markdown, in_toml
from warren.server.tls import make_context

WRONG = 2
DEFAULT = "default"
HAS_SECRETS = ("tls_key_password", "users", "shovels")  # settings whose values are not shown


@click.group("config", no_args_is_help=True)
def config() -> None:
    """Check and show settings."""


@config.command("check")
@click.argument("file", required=False)
def check(file: str | None) -> int:
    """Check a file of settings (warren.toml, if there is one), and tell what is wrong."""
    try:
        settings = load({"config": file})
        static_shovels(settings)
        check_audit_log(settings.audit_log)
        for name in settings.auth_backends:
            if name != INTERNAL:
                load_authenticator(name)
        tls = settings.tls()
        if tls is not None:
            make_context(tls)  # reads the certificates
    except ConfigError as error:
        sys.stderr.write(f"warren config check: {error}\n")
        return WRONG
    sys.stdout.write("all settings are right\n")
    return 0


@config.command("show")
@click.option(
    "--config", "file", metavar="FILE", help="settings in TOML (default: warren.toml, if there is one)"
)
@click.option("--json", "as_json", is_flag=True, help="as JSON")
def show(file: str | None, *, as_json: bool) -> int:
    """Show the settings in force, and where each comes from."""
    flags = {"config": file}
    try:
        given, settings_in_force = given_settings(flags), load(flags)
    except ConfigError as error:
        sys.stderr.write(f"warren config show: {error}\n")
        return WRONG
    settings = {field.name: _shown(settings_in_force, field.name, given) for field in fields(Config)}
    if as_json:
        rows = {name: {"value": value, "from": place} for name, (value, place) in settings.items()}
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        for name, (value, place) in settings.items():
            sys.stdout.write(f"{name} = {value}  # {place}\n")
    return 0


@config.command("reference")
def reference() -> int:
    """Print the reference of all settings, as Markdown."""
    sys.stdout.write(as_markdown())
    return 0


def _shown(config: Config, name: str, given: dict[str, Given]) -> tuple[str, str]:
    value = getattr(config, name)
    place = given[name].place if name in given else DEFAULT
    if name in HAS_SECRETS:
        hidden = ("set" if value else "not set") if isinstance(value, str) else f"{len(value)} of them"
        return f"[{hidden}]", place
    return in_toml(value), place
