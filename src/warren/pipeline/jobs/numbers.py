"""Numbers on a command line, checked when they are read: what they raise is a usage error, exit code 2."""

from __future__ import annotations

import argparse
import re

SPAN = re.compile(r"([1-9][0-9]*) ?(second|minute|hour|day)s?")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a whole number above 0: {text!r}")
    return int(text)


def span(text: str) -> str:
    """A stretch of time as Spark writes it."""
    found = SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"not a time such as '10 seconds', '1 minute' or '1 day': {text!r}")
    return f"{found[1]} {found[2]}{'' if found[1] == '1' else 's'}"
