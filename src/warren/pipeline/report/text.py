"""A result as text for a terminal: numbers, then tables with columns no wider than needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from warren.pipeline.report.result import JobResult, Table
from warren.pipeline.report.words import in_words, is_number, printable

WIDTH_DEFAULT = 120
CELL_WIDTH_MIN = 8
GAP = "  "
ELLIPSIS = "…"


def as_text(result: JobResult, *, width: int = WIDTH_DEFAULT) -> str:
    parts = chain(
        [f"{result.title}\n"],
        _numbers(result),
        *(_table(table, width) for table in result.tables),
        *([f"\n{note}\n"] for note in result.notes),
    )
    return "".join(parts)


def _numbers(result: JobResult) -> Iterator[str]:
    label_width = max(map(len, result.numbers), default=0)
    for label, value in result.numbers.items():
        yield f"  {label:<{label_width}}  {in_words(value)}\n"


def _table(table: Table, width: int) -> Iterator[str]:
    yield f"\n{printable(table.name)}\n"
    if table.rows:
        cells = [[in_words(value) for value in row] for row in table.rows]
        rigid = [not any(isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
        right = [all(is_number(row[i]) or row[i] is None for row in table.rows) for i in range(len(rigid))]
        widths = _widths(table.columns, cells, rigid, width)
        yield _line(table.columns, widths, right)
        yield _line(["-" * w for w in widths], widths, right)
        for row in cells:
            yield _line(row, widths, right)
    else:
        yield f"{GAP}none\n"
    if table.rows_left_out:
        yield f"{GAP}and {table.rows_left_out:,} more\n"
    if table.note:
        yield f"{GAP}{table.note}\n"


def _widths(
    columns: Sequence[str], cells: Sequence[Sequence[str]], rigid: Sequence[bool], total: int
) -> list[int]:
    """The columns' widths. Numbers and times are never cut off, only their headings; texts may be."""
    contents = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    natural = [max(len(column), content) for column, content in zip(columns, contents, strict=True)]
    least = [
        content if is_rigid else CELL_WIDTH_MIN for content, is_rigid in zip(contents, rigid, strict=True)
    ]
    return fit(natural, least, total)


def fit(widths: Sequence[int], least: Sequence[int], total: int) -> list[int]:
    """Shrink columns to the total width, the widest first, and none below its least width."""
    fitted = list(widths)
    while sum(fitted) + len(GAP) * len(fitted) > total:
        can_give = [i for i, width in enumerate(fitted) if width > least[i]]
        if not can_give:
            break
        fitted[max(can_give, key=lambda i: fitted[i])] -= 1
    return fitted


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    shown = (
        cut(cell, width).rjust(width) if to_right else cut(cell, width).ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    return f"{GAP}{GAP.join(shown)}".rstrip() + "\n"


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + ELLIPSIS
