"""Numbers on a command line. What these functions raise is a usage error for argparse: exit code 2."""

from __future__ import annotations

import argparse
import re

BYTES = re.compile(r"([1-9][0-9]*) ?([kMGT]?B|[KMGT]iB)?")
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SPAN = re.compile(r"([1-9][0-9]*) ?(second|minute|hour|day)s?")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a whole number above 0: {text!r}")
    return int(text)


def whole_seconds(text: str) -> int:
    """A number of seconds; 0 means never."""
    return 0 if text == "0" else positive(text)


def span(text: str) -> str:
    """A length of time, in the form that Spark takes."""
    found = SPAN.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"not a time such as '10 seconds', '1 minute' or '1 day': {text!r}")
    return f"{found[1]} {found[2]}{'' if found[1] == '1' else 's'}"


def byte_count(text: str) -> int:
    found = BYTES.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"not a size such as '128 MB', '64 MiB' or '5000000': {text!r}")
    return int(found[1]) * UNITS[found[2] or "B"]
