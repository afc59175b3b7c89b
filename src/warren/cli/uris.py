"""URIs on the command line: their passwords may be in the environment, and not among the arguments."""

from __future__ import annotations

import os
import re
from urllib.parse import quote

from warren.cli.grammar import Failed

VARIABLE = re.compile(r"\$\{(\w+)\}")


def filled_in(uri: str) -> str:
    """The same URI, with variables of the environment in the place of `${NAME}`."""
    try:
        return VARIABLE.sub(lambda found: quote(os.environ[found[1]], safe=""), uri)
    except KeyError as error:
        raise Failed(f"{error.args[0]} is no variable of the environment") from None
