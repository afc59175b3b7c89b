"""Tables for terminals, by rich."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

COLUMN_WIDTH_MAX = 60
KEPT_WIDTH_MAX = 30  # cells that are no wider are not broken, as long as there is room for that
TITLE_WIDTH_MAX = 12  # titles that are longer are broken behind their underscores


def table(rows: Sequence[Sequence[str]], columns: Sequence[str], *, header: bool = True) -> Table:
    """Columns of numbers are flush right. Names are never read as rich's markup."""
    drawn = Table(box=box.SIMPLE_HEAD if header else None, show_header=header, pad_edge=False)
    for number, column in enumerate(columns):
        is_number = bool(rows) and all(is_figure(row[number]) for row in rows)
        drawn.add_column(
            Text(column if len(column) <= TITLE_WIDTH_MAX else column.replace("_", "_\n")),
            justify="right" if is_number else "left",
            min_width=_kept_width([row[number] for row in rows]),
            max_width=COLUMN_WIDTH_MAX,
            overflow="fold",
        )
    for row in rows:
        drawn.add_row(*(Text(value) for value in row))
    return drawn


def _kept_width(cells: Sequence[str]) -> int | None:
    """The width of a column of short cells; None if some are so long that they may be broken."""
    widest = max(map(cell_len, cells), default=0)
    return widest if widest <= KEPT_WIDTH_MAX else None


def is_figure(text: str) -> bool:
    return not text or text.replace(".", "", 1).replace(",", "").lstrip("-").isdigit()
