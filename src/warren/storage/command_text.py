"""Commands as JSON objects that an operator can read, and back.

    {"declare_queue": {"vhost": "/", "name": "orders", "durable": true, "arguments": {"x-max-length": 5}}}

The object's one key is the command's name, and what is in it are the fields of its dataclass; one that has
its default value is left out, which makes the defaults of commands a part of the format. A new command
needs nothing here but to be in `Command`; a field of a new type needs a line in `_KINDS`.

A field that matters only when the command is carried out, such as the owner of an exclusive queue, is never
written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, get_args

from warren.broker.access import Permissions, TopicPermissions
from warren.broker.commands import NOT_KEPT, OF_THE_MOMENT, Command
from warren.broker.parameters import Json
from warren.broker.passwords import PasswordHash
from warren.broker.vhost_metadata import VhostMetadata
from warren.storage.table_text import expect, table_from_json, table_to_json

OR_NONE = " | None"
_NEVER = object()  # equals nothing that is written
_new, _set = object.__new__, object.__setattr__


def command_to_json(command: Command) -> dict[str, Json]:
    name, shape = _WRITTEN_AS[type(command)]
    return {name: shape.write(command)}


def command_from_json(text: dict[str, Json]) -> Command:
    """ValueError if it is no command that is known here."""
    if len(expect(dict, text)) != 1:
        raise ValueError("expected one command")
    ((name, content),) = text.items()
    shape = _SHAPES.get(name)
    if shape is None:
        raise ValueError(f"unknown command '{name}'")
    try:
        command: Command = shape.read(content)
    except (ValueError, ArithmeticError) as error:
        raise ValueError(f"{name}: {error}") from error
    return command


@dataclass(frozen=True)
class _Kind:
    """How the values of one type of field are written, if not as they are, and read. What is `plain` is of
    this type when it is read, and needs nothing else.
    """

    write: Callable[[Any], Json] | None
    read: Callable[[Any], Any]
    plain: type | None = None


class _Shape:
    """How a dataclass is written and read.

    What grants access is written with its defaults, so that nobody has to know them to see what is granted.
    """

    def __init__(self, made: type, *, with_defaults: bool) -> None:
        self.made = made  # the dataclass
        self.kinds: dict[str, tuple[str, type | None, _Kind]] = {}
        """By a field's name: that name, as one string for all commands; its plain type, if any; its kind."""
        self.required: set[str] = set()  # names of fields without a default
        self.factories: dict[str, Callable[[], Any]] = {}  # by field: makes a default that is a new object
        self.is_bare = not hasattr(made, "__post_init__") and not hasattr(made, "__slots__")
        """Whether an instance can be made by setting its fields, which is faster than `__init__`."""
        self.parts: list[tuple[str, Callable[[Any], Json] | None, object]] = []
        """For each field: its name, how its value is written, and the value that is left out."""
        for field in fields(made):
            if field.metadata != OF_THE_MOMENT:
                self._add(field, with_defaults=with_defaults)

    def _add(self, field: Field[Any], *, with_defaults: bool) -> None:
        kind = _kind_of(str(field.type))
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
            self.factories[field.name] = field.default_factory
        self.kinds[field.name] = (field.name, kind.plain, kind)
        if default is MISSING:
            self.required.add(field.name)
        leave_out = _NEVER if default is MISSING or with_defaults else _written(kind, default)
        self.parts.append((field.name, kind.write, leave_out))

    def write(self, value: object) -> Json:
        text = {}
        for name, write, leave_out in self.parts:
            content = getattr(value, name)
            if write is not None:
                content = write(content)
            if content != leave_out:
                text[name] = content
        return text

    def read(self, text: Json) -> Any:
        values = {}
        for word, content in expect(dict, text).items():
            known = self.kinds.get(word)
            if known is None:
                raise ValueError(f"unknown field '{word}'")
            name, plain, kind = known
            values[name] = content if plain is type(content) else _read_field(name, kind, content)
        if len(values) < len(self.kinds) and not self.required <= values.keys():
            raise ValueError(f"lacks {', '.join(sorted(self.required - values.keys()))}")
        return self._make(values) if self.is_bare else self.made(**values)

    def _make(self, values: dict[str, Any]) -> Any:
        """What the constructor would make. That of a frozen dataclass takes as long as reading the JSON."""
        made: Any = _new(self.made)
        for name, value in values.items():
            _set(made, name, value)
        for name, factory in self.factories.items():
            if name not in values:
                _set(made, name, factory())
        return made


def _read_field(name: str, kind: _Kind, content: Json) -> Any:
    try:
        return kind.read(content)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _written(kind: _Kind, value: Any) -> Any:
    return value if kind.write is None else kind.write(value)


def _plain(expected: type) -> _Kind:
    """A type that JSON has itself."""
    return _Kind(None, lambda text: expect(expected, text), expected)


def _nested(made: type) -> _Kind:
    shape = _Shape(made, with_defaults=True)
    return _Kind(shape.write, shape.read)


def _optional(kind: _Kind) -> _Kind:
    return _Kind(
        lambda value: None if value is None else _written(kind, value),
        lambda text: None if text is None else kind.read(text),
    )


def _read_strings(text: Json) -> frozenset[str]:
    return frozenset(expect(str, item) for item in expect(list, text))


def _kind_of(annotation: str) -> _Kind:
    """By the annotation's text, since what it names may be there for the type checker only."""
    if annotation.endswith(OR_NONE):
        return _optional(_kind_of(annotation.removesuffix(OR_NONE)))
    return _KINDS[annotation]


_KINDS: dict[str, _Kind] = {kind.__name__: _plain(kind) for kind in (str, bool, int)}
_KINDS["frozenset[str]"] = _Kind(sorted, _read_strings)
_KINDS["Json"] = _Kind(None, lambda text: text)
_KINDS["Table"] = _Kind(table_to_json, table_from_json)
_KINDS |= {
    made.__name__: _nested(made) for made in (PasswordHash, Permissions, TopicPermissions, VhostMetadata)
}


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_WRITTEN_AS: dict[type, tuple[str, _Shape]] = {
    made: (_snake_case(made.__name__), _Shape(made, with_defaults=False))
    for made in get_args(Command)
    if made not in NOT_KEPT
}
_SHAPES: dict[str, _Shape] = dict(_WRITTEN_AS.values())
