"""Tables for terminals, by rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

COLUMN_WIDTH_MAX = 60


def table(rows: Sequence[Sequence[str]], columns: Sequence[str], *, header: bool = True) -> Table:
    """Columns of numbers are flush right. Names are never read as rich's markup."""
    drawn = Table(box=box.SIMPLE_HEAD if header else None, show_header=header, pad_edge=False)
    for number, column in enumerate(columns):
        is_number = bool(rows) and all(is_figure(row[number]) for row in rows)
        drawn.add_column(
            Text(column),
            justify="right" if is_number else "left",
            max_width=COLUMN_WIDTH_MAX,
            overflow="fold",
        )
    for row in rows:
        drawn.add_row(*(Text(value) for value in row))
    return drawn


def is_figure(text: str) -> bool:
    return not text or text.replace(".", "", 1).replace(",", "").lstrip("-").isdigit()
