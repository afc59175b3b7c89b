"""Results as one HTML page that needs nothing else: no script, no font, no picture from elsewhere.

It works with a keyboard and a screen reader, on paper, and in light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from html import escape

from warren.pipeline.report.result import JobResult, LinePlot, Plot, Table, Value
from warren.pipeline.report.style import STYLE
from warren.pipeline.report.svg import SERIES_MAX, as_svg, is_in_panels, is_lone
from warren.pipeline.report.words import in_words, is_number, printable

LONG_TEXT = 12


def as_html(results: Sequence[JobResult], *, title: str, made: str) -> str:
    """The page. `made` says when and by what it was made; it is shown below the title."""
    alone = len(results) == 1 and results[0].title == title
    sections = "".join(_section(result, index, named=not alone) for index, result in enumerate(results))
    links = "".join(
        f'<li><a href="#r{index}">{_text(result.title)}</a></li>' for index, result in enumerate(results)
    )
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(results) > 1 else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{_text(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{_text(title)}</h1><p>{_text(made)}</p>{contents}</header>\n"
        f"<main>{sections}</main>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _section(result: JobResult, index: int, *, named: bool) -> str:
    """A result. It has no heading if the page has no other: then the page's title is enough."""
    heading = f'<h2 id="r{index}-title">{_text(result.title)}</h2>' if named else ""
    notes = "".join(f'<p class="note">{_text(note)}</p>' for note in result.notes)
    return (
        f'<section id="r{index}" aria-label="{_text(result.title)}">{heading}{_numbers(result)}{notes}'
        + "".join(_figure(plot) for plot in result.plots)
        + "".join(_table(table) for table in result.tables)
        + "</section>"
    )


def _numbers(result: JobResult) -> str:
    if not result.numbers:
        return ""
    pairs = "".join(
        f"<div><dt>{_text(label)}</dt><dd>{_text(in_words(value))}</dd></div>"
        for label, value in result.numbers.items()
    )
    return f"<dl>{pairs}</dl>"


def _figure(plot: Plot) -> str:
    return f"<figure><figcaption>{_text(plot.title)}</figcaption>{_legend(plot)}{as_svg(plot)}</figure>"


def _legend(plot: Plot) -> str:
    if not isinstance(plot, LinePlot) or len(plot.series) < 2:  # noqa: PLR2004 - one line needs no legend
        return ""
    if is_lone(plot) or is_in_panels(plot):  # each series is named where it is drawn
        return ""
    names = "".join(
        f'<li><span class="key s{index}"></span>{_text(line.name)}</li>'
        for index, line in enumerate(plot.series[:SERIES_MAX])
    )
    return f'<ul class="legend" aria-hidden="true">{names}</ul>'


def _table(table: Table) -> str:
    kinds = [
        _kind(next((row[i] for row in table.rows if row[i] is not None), None))
        for i in range(len(table.columns))
    ]
    head = "".join(
        f'<th scope="col" class="{kind}">{_text(column)}</th>'
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in table.rows)
    body = body or f'<tr><td colspan="{len(table.columns)}">none</td></tr>'
    more = f"and {table.rows_left_out:,} more. " if table.rows_left_out else ""
    note = f'<p class="note">{_text(more + table.note)}</p>' if more or table.note else ""
    name = _text(table.name)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table><caption>{name}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _cell(value: Value) -> str:
    return f'<td class="{_kind(value)}">{_text(in_words(value))}</td>'


def _kind(value: Value) -> str:
    """The CSS class of a cell with this value, and of a column with such values."""
    if is_number(value):
        return "number"
    if isinstance(value, date):
        return "time"
    return "text" if isinstance(value, str) and len(value) >= LONG_TEXT else "short"
