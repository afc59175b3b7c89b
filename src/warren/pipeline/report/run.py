"""A table about the run itself: the command's options, when it ran and how long. Secrets are left out."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from datetime import datetime

from warren.pipeline.report.result import Table, Value

USERINFO = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@")
SECRET = re.compile(r"password|secret|token|credential|key", re.IGNORECASE)
HIDDEN = "…"
NOT_TOLD = ("job", "html", "quiet", "password")
OPTIONS = {"compared_archive": "archive"}  # names of values that are not those of their options


def run_table(options: argparse.Namespace, began: datetime, seconds: float) -> Table:
    rows: list[tuple[Value, ...]] = [("began", began), ("took", f"{seconds:.1f} s")]
    for name, value in vars(options).items():
        if name not in NOT_TOLD and value is not None and value is not False and value != []:
            option = OPTIONS.get(name, name).replace("_", "-")
            rows.append((f"--{option}", ", ".join(_words(value))))
    return Table("This run", ("what", "value"), rows)


def _words(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _words(each)
    elif isinstance(value, tuple):  # a setting of Spark
        key, text = value
        yield f"{key}={HIDDEN if SECRET.search(key) else without_secrets(text)}"
    else:
        yield "yes" if value is True else without_secrets(str(value))


def without_secrets(text: str) -> str:
    """A URL without the user and password that may be in it."""
    return USERINFO.sub(f"{HIDDEN}@", text)
