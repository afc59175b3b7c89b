"""Results as text: aligned, no wider than the terminal, and harmless whatever names clients chose."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from warren.pipeline.report.result import JobResult, Table, Value
from warren.pipeline.report.text import as_text, fit
from warren.pipeline.report.words import byte_size, in_words


def test_figures_and_tables_are_aligned_with_numbers_to_the_right() -> None:
    table = Table(
        "Read", ("queue", "messages"), [("orders", 1200), ("a", 7)], note="That is all.", rows_left_out=3
    )
    result = JobResult(
        title="Flow", numbers={"messages read": 1207, "gaps": 0}, tables=[table], notes=["Fine."]
    )
    assert as_text(result) == (
        "Flow\n"
        "  messages read  1,207\n"
        "  gaps           0\n"
        "\nRead\n"
        "  queue   messages\n"
        "  ------  --------\n"
        "  orders     1,200\n"
        "  a              7\n"
        "  and 3 more\n"
        "  That is all.\n"
        "\nFine.\n"
    )


def test_table_without_rows_says_so() -> None:
    assert (
        as_text(JobResult(title="Audit", tables=[Table("Gaps", ("queue",), [])])) == "Audit\n\nGaps\n  none\n"
    )


def test_no_line_is_wider_than_the_terminal() -> None:
    table = Table("Read", ("queue", "key", "messages"), [("q" * 200, "k" * 90, 12)])
    lines = as_text(JobResult(title="Flow", tables=[table]), width=60).splitlines()
    assert max(map(len, lines)) == 60
    assert "qqq…" in lines[-1]
    assert lines[-1].endswith(" 12")


def test_columns_give_way_only_to_a_readable_width() -> None:
    assert fit([100, 5, 100], [8, 8, 8], 40) == [14, 5, 15]
    assert fit([20, 20], [8, 8], 5) == [8, 8]


def test_numbers_and_times_are_never_cut() -> None:
    """A number without its last digits is another number; only the heading gives way."""
    came = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    table = Table("Read", ("queue", "a long heading", "at"), [("q" * 30, 1234567, came)])
    lines = as_text(JobResult(title="Flow", tables=[table]), width=20).splitlines()
    assert lines[-3:] == [
        "  queue     a long h…  at",
        "  --------  ---------  -------------------",
        "  qqqqqqq…  1,234,567  2026-03-01 12:30:00",
    ]


def test_names_cannot_move_the_cursor() -> None:
    table = Table("Read", ("queue",), [("\x1b[2Jgone\n",)])
    assert "\\x1b[2Jgone\\n" in as_text(JobResult(title="Flow", tables=[table]))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (0.123456, "0.123"),
        (2.0, "2"),
        (12345.6, "12,346"),
        (datetime(2026, 3, 1, 12, 30, tzinfo=UTC), "2026-03-01 12:30:00"),
        (datetime(2026, 3, 1, 12, 30, 0, 7_000, tzinfo=UTC), "2026-03-01 12:30:00.007"),
        (date(2026, 3, 1), "2026-03-01"),
    ],
)
def test_values_in_words(value: Value, words: str) -> None:
    assert in_words(value) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (2**50, "1,024 TiB")]
)
def test_sizes_in_words(count: int, words: str) -> None:
    assert byte_size(count) == words
