"""The reference of all settings, made from the code: the fields of `Config`, their defaults, and the comments
and docstrings beside them.
"""

from __future__ import annotations

import inspect
import io
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass

from warren.server.address import Address
from warren.server.config import ENVIRONMENT_PREFIX, Config
from warren.server.reloadable import ALWAYS, IF_WANTED, WITH_TLS

HEAD = """\
# Settings

A flag of `warren serve` wins over the environment, the environment over `warren.toml`, and that over the
default. `warren config show` prints the settings in force and where each comes from, and
`warren config check FILE` checks a file. This page is made from the code by `warren config reference`.

The column SIGHUP tells when that signal makes a running broker take over a setting that has changed:
`always`; `with TLS`, if the broker has had it since its start; `if wanted`, by `reload_definitions`. All
others need a restart.

| setting | environment | default | SIGHUP | meaning |
|---|---|---|---|---|
"""
RELOADED = {
    **dict.fromkeys(ALWAYS, "always"),
    **dict.fromkeys(WITH_TLS, "with TLS"),
    **dict.fromkeys(IF_WANTED, "if wanted"),
}
"""When SIGHUP changes a setting. What is not here needs a restart."""


@dataclass(frozen=True)
class Setting:
    name: str  # in `warren.toml`
    default: str  # as it is written in TOML
    text: str  # what it means

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return ENVIRONMENT_PREFIX + self.name.upper()


def settings() -> list[Setting]:
    texts = dict(_texts(inspect.getsource(Config)))
    return [
        Setting(each.name, in_toml(_default_of(each)), texts.get(each.name, "")) for each in fields(Config)
    ]


def as_markdown() -> str:
    lines = [
        f"| `{s.name}` | `{s.variable}` | {_code(s.default)} | {RELOADED.get(s.name, '')} | {_cell(s.text)} |"
        for s in settings()
    ]
    return HEAD + "\n".join(lines) + "\n"


def in_toml(value: object) -> str:
    """A value as TOML writes it. Lists of definitions, which have objects in them, are shown as `[…]`, and
    a table of settings without those that have their default.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, tuple | list):
        plain = all(isinstance(item, str | int | float | Address) for item in value)
        return f"[{', '.join(map(in_toml, value))}]" if plain else "[…]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{in_toml(name)} = {in_toml(item)}' for name, item in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, Address):
        differing = [each.name for each in fields(value) if getattr(value, each.name) != _default_of(each)]
        return f"{{{', '.join(f'{name} = {in_toml(getattr(value, name))}' for name in differing)}}}"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    proxied = value.proxy_protocol if isinstance(value, Address) else None
    return (
        f'"{text}"' if proxied is None else f'{{ address = "{text}", proxy_protocol = {in_toml(proxied)} }}'
    )


def _default_of(field: Field[object]) -> object:
    if field.default is not MISSING:
        return field.default
    assert field.default_factory is not MISSING, f"the setting {field.name} has a default"
    return field.default_factory()


def _texts(source: str) -> Iterator[tuple[str, str]]:
    """The name of each field, with the comment on its line or the docstring below it."""
    name, depth = "", 0
    at_start = True  # of a line
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        if token.type == tokenize.NAME and at_start:
            name = token.string
        elif token.type == tokenize.COMMENT and name and not depth:
            yield name, _sentence(token.string.lstrip("# "))
        elif token.type == tokenize.STRING and at_start and name:
            yield name, _sentence(inspect.cleandoc(token.string.strip('"')))
        at_start = token.type in {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}


def _sentence(text: str) -> str:
    words = " ".join(text.split())
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def _code(default: str) -> str:
    return "none" if default == '"None"' else f"`{default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
