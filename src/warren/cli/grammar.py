"""What all commands over the HTTP API have in common: their options, their errors and their exit codes.

A command is a function that takes a `Remote` and its own arguments:

    @queues.verb("delete", "rm")
    @over_http
    @click.argument("name")
    def delete(remote: Remote, name: str) -> None: ...
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from warren.cli import exits
from warren.cli.output import Printer
from warren.cli.profiles import names, profiles_path
from warren.cli.target import Given, Target, TargetError, find_target
from warren.cli.text import has_field
from warren.client.api import Api, ApiError, Row, Unreachable
from warren.client.errors import ClientError
from warren.client.uri import UriTls, without_passwords

VHOST_DEFAULT = "/"
KINDS_OF_VHOSTS = {"exchanges", "federation-links", "parameters", "policies", "queues", "shovels"}
COMPLETIONS_MAX = 100
COMPLETION_SECONDS_MAX = 2.0


@dataclass
class Remote:
    """A broker that a command speaks to, and where its answers go."""

    target: Target
    api: Api
    printer: Printer

    @property
    def vhost(self) -> str:
        return self.target.vhost or VHOST_DEFAULT

    @property
    def vhosts(self) -> tuple[str, ...]:
        """The rest of a list's path: the vhost, or nothing for all vhosts."""
        return () if self.target.vhost is None else (self.target.vhost,)


class Failed(Exception):
    """A command has failed; the text says why."""


def over_http(command: Callable[..., None]) -> Callable[..., int]:
    """Give the command a `Remote`, and the options that say which."""

    @click.option("--url", metavar="URL", help="the HTTP API, such as http://user@host:15672")
    @click.option("--profile", metavar="NAME", help="a broker of profiles.toml", shell_complete=_profiles)
    @click.option("-p", "--vhost", metavar="NAME", help="the vhost", shell_complete=completing("vhosts"))
    @click.option("--cacert", metavar="FILE", help="certificates that a broker with TLS is checked by")
    @click.option("--cert", metavar="FILE", help="our own certificate, for a broker that asks for one")
    @click.option("--cert-key", metavar="FILE", help="its key, unless that is in the same file")
    @click.option("--json", "as_json", is_flag=True, help="print JSON")
    @click.option("--no-header", is_flag=True, help="print tables without the names of their columns")
    @functools.wraps(command)
    def run(
        *arguments: Any,
        url: str | None,
        profile: str | None,
        vhost: str | None,
        cacert: str | None,
        cert: str | None,
        cert_key: str | None,
        as_json: bool,
        no_header: bool,
        **options: Any,
    ) -> int:
        def work() -> None:
            target = find_target(Given(url, profile, vhost, UriTls(cacert or "", cert or "", cert_key or "")))
            printer = Printer(as_json=as_json, header=not no_header)
            with target.api() as api:
                command(Remote(target, api, printer), *arguments, **options)

        return guarded(work)

    return run


def guarded(work: Callable[[], None]) -> int:
    """Do the work of a command; its errors become one line and an exit code."""
    try:
        work()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone: throw away the rest, also what Python still has buffered
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ApiError, Failed, ClientError) as error:
        return _fail(str(error), exits.REFUSED)
    except TargetError as error:
        return _fail(str(error), exits.USAGE)
    except Unreachable as error:
        return _fail(str(error), exits.UNREACHABLE)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    return 0


def _fail(text: str, code: int) -> int:
    name = click.get_current_context().command_path
    sys.stderr.write(f"{name}: {text}\n")
    return code


# --- groups ---


class Nouns(click.Group):
    """The commands for one kind of object. A command may have further names, such as `list` for `ls`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.aliases: dict[str, str] = {}  # the name of the command, by its further name

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def verb(self, name: str, *aliases: str) -> Callable[[Callable[..., Any]], click.Command]:
        self.aliases |= dict.fromkeys(aliases, name)
        return self.command(name)


def nouns(name: str, about: str) -> Nouns:
    return Nouns(name, help=about, no_args_is_help=True)


# --- lists ---


def listing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of lists. The command gets their `query`, and the columns that were asked for."""

    @click.argument("columns", nargs=-1, metavar="[COLUMN]...")
    @click.option("--name", "text", metavar="TEXT", help="only those whose name has this in it")
    @click.option("--regex", is_flag=True, help="--name is a regular expression")
    @click.option("--sort", metavar="COLUMN", help="sort by this column")
    @click.option("--reverse", is_flag=True, help="the highest first")
    @functools.wraps(command)
    def run(
        remote: Remote,
        *arguments: Any,
        text: str | None,
        regex: bool,
        sort: str | None,
        reverse: bool,
        **options: Any,
    ) -> None:
        query: dict[str, str] = {}
        if text is not None:
            query |= {"name": text, "use_regex": str(regex).lower()}
        if sort is not None:
            query |= {"sort": sort, "sort_reverse": str(reverse).lower()}
        command(remote, *arguments, query=query, **options)

    return run


def show_list(
    remote: Remote,
    *parts: str,
    query: dict[str, str],
    columns: Sequence[str],
    default: Sequence[str],
    vhost: str | None = None,
    has_secrets: bool = False,
) -> None:
    """Print a list with the columns that were asked for, or the usual ones. JSON has all, if none were. With
    `vhost`, only rows of this vhost are printed, for lists that have no path of their own for that. Lists
    with secrets are printed without the passwords of URIs.
    """
    shown = tuple(columns) or tuple(default)
    unknown = dict.fromkeys([*columns, *([query["sort"]] if "sort" in query else ())])
    asked = dict.fromkeys([*shown, *unknown, *(() if vhost is None else ("vhost",))])
    wanted = query if remote.printer.as_json and not columns else query | {"columns": ",".join(asked)}
    pages = _dropping(unknown, remote.api.pages(*parts, query=wanted))
    if vhost is not None:
        pages = ([row for row in page if row.get("vhost") == vhost] for page in pages)
    remote.printer.table(map(without_passwords, pages) if has_secrets else pages, shown, cut=bool(columns))
    for name in unknown:
        path = click.get_current_context().command_path
        sys.stderr.write(f"{path}: nothing in this list has a field '{name}'\n")


def _dropping(fields: dict[str, None], pages: Iterator[list[Row]]) -> Iterator[list[Row]]:
    """The same pages. Of these fields, drop those that a row has; of an empty list nothing can be told."""
    is_empty = True
    for page in pages:
        for row in page:
            is_empty = False
            for name in [each for each in fields if has_field(row, each)]:
                del fields[name]
        yield page
    if is_empty:
        fields.clear()


# --- completion ---


def _profiles(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names(profiles_path()) if name.startswith(begun)]


def completing(
    *path: str, field: str = "name"
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes the names of objects with this path, such as `queues`, by asking the broker; or another field
    of them. If the broker cannot be asked without a prompt, nothing is offered.
    """

    def complete(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        options = context.params
        cacert, cert, key = (options.get(name) or "" for name in ("cacert", "cert", "cert_key"))
        given = Given(
            options.get("url"), options.get("profile"), options.get("vhost"), UriTls(cacert, cert, key)
        )
        try:
            target = find_target(given, can_prompt=False)
            of_vhost = (target.vhost or VHOST_DEFAULT,) if path[0] in KINDS_OF_VHOSTS else ()
            query = {"columns": field, "page": "1", "page_size": str(COMPLETIONS_MAX)}
            if field == "name":
                query = {"name": begun, **query}
            with target.api(answer_seconds_max=COMPLETION_SECONDS_MAX) as api:
                answer = api.get(*path, *of_vhost, query=query)
        except (TargetError, ApiError, Unreachable):
            return []
        rows = answer["items"] if isinstance(answer, dict) else answer
        found = (row[field] for row in rows)
        return [CompletionItem(name) for name in found if name and name.startswith(begun)]

    return complete
