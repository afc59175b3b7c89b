"""README's table of loads, and the scenarios that measure them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.compare import SCENARIOS

README = Path(__file__).parents[3] / "README.md"


def rows_of_readme() -> list[str]:
    """The first cells of the table in the chapter `How fast`, without its head."""
    chapter = README.read_text().partition("\n## How fast\n")[2].partition("\n\n| load |")[2]
    _, _, *rows = chapter.partition("\n\n")[0].splitlines()
    return [row.split("|")[1].strip() for row in rows]


def test_every_scenario_has_its_row_in_the_readme_in_order() -> None:
    assert [scenario.row for scenario in SCENARIOS.values()] == rows_of_readme()
