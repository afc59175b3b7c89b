"""Names of options: Spark hands them over in lower case, and an unknown one is an error with a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from warren.pipeline.errors import PipelineError


def names_of(*names: str) -> dict[str, str]:
    """A table of known options: from the lower-case name, as Spark has it, to the name as we write it."""
    return {name.lower(): name for name in names}


def canonical(
    given: Mapping[str, str],
    known: Mapping[str, str],
    *,
    purpose: str,
    error: type[PipelineError],
    what: str = "option",
) -> dict[str, str]:
    """The options under the names that we write. If one is not `known`, `error` suggests the nearest name."""
    unknown = [name for name in given if name.lower() not in known]
    if unknown:
        raise error(_told(f"{what} '{unknown[0]}' {purpose}", unknown[0], known.values()))
    return {known[name.lower()]: value for name, value in given.items()}


def _told(unknown: str, name: str, known: Iterable[str]) -> str:
    plain = {re.sub(r"[\W_]", "", each).lower(): each for each in known}
    near = get_close_matches(re.sub(r"[\W_]", "", name).lower(), plain, n=1)
    hint = f"did you mean {plain[near[0]]}? " if near else ""
    return f"unknown {unknown}: {hint}there are {', '.join(plain.values())}"
