"""What the commands print: tables on a terminal, tab-separated lines otherwise, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TextIO

from warren.cli.text import cell, cells, value_at
from warren.client.api import Row


class Printer:
    def __init__(self, out: TextIO | None = None, *, as_json: bool = False, header: bool = True) -> None:
        self.out = out or sys.stdout
        self.as_json = as_json
        self.header = header  # whether tables have a line with the names of the columns

    def table(self, pages: Iterable[Sequence[Row]], columns: Sequence[str], *, cut: bool = False) -> None:
        """Print rows. Lines and JSON are printed page by page; a table has to wait for all of them. In JSON
        the rows have all their fields, unless `cut` leaves these columns only.
        """
        if self.as_json:
            rows = (row for page in pages for row in page)
            self._json_list({name: value_at(row, name) for name in columns} if cut else row for row in rows)
        elif self.out.isatty():
            self._drawn([cells(row, columns) for page in pages for row in page], columns)
        else:
            self._lines((cells(row, columns) for page in pages for row in page), columns)

    def record(self, row: Row) -> None:
        """Print one object, a field on each line."""
        if self.as_json:
            self.json(row)
        elif self.out.isatty():
            self._drawn([[name, cell(value)] for name, value in row.items()], ("field", "value"))
        else:
            self.out.writelines(f"{name}\t{cell(value)}\n" for name, value in row.items())

    def json(self, content: object) -> None:
        self.out.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def said(self, text: str) -> None:
        """Say on a terminal that something was done. Scripts see that from the exit code."""
        if self.out.isatty() and not self.as_json:
            self.out.write(text + "\n")

    def _json_list(self, rows: Iterator[Row]) -> None:
        begin = "["
        for row in rows:
            self.out.write(f"{begin}\n{json.dumps(row, ensure_ascii=False)}")
            begin = ","
        self.out.write("[]\n" if begin == "[" else "\n]\n")

    def _lines(self, rows: Iterator[list[str]], columns: Sequence[str]) -> None:
        first = list(islice(rows, 1))  # the broker may refuse: then there is no table at all
        if self.header:
            self.out.write("\t".join(columns) + "\n")
        for row in chain(first, rows):
            self.out.write("\t".join(row) + "\n")

    def _drawn(self, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
        from rich.console import Console  # noqa: PLC0415 - takes a tenth of a second, for terminals only

        from warren.cli.drawing import table  # noqa: PLC0415

        Console(file=self.out, highlight=False).print(table(rows, columns, header=self.header))
