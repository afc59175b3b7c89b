"""How the commands print: for terminals, for scripts, as JSON."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from warren.cli.drawing import table
from warren.cli.main import ENTRIES, main, warren
from warren.cli.output import Printer
from warren.cli.text import cell, value_at

ROWS = [[{"name": "a", "messages": 12, "nested": {"rate": 0.25}}], [{"name": "[b]", "messages": 3}]]
COLUMNS = ("name", "messages", "nested.rate")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(out: io.StringIO, printer: Printer, *, cut: bool = False) -> str:
    printer.table(ROWS, COLUMNS, cut=cut)
    return out.getvalue()


def test_without_a_terminal_lines_have_tabs() -> None:
    out = io.StringIO()
    assert printed(out, Printer(out)) == "name\tmessages\tnested.rate\na\t12\t0.2\n[b]\t3\t\n"


def test_names_of_columns_can_be_left_out() -> None:
    out = io.StringIO()
    assert printed(out, Printer(out, header=False)) == "a\t12\t0.2\n[b]\t3\t\n"


def test_json_has_all_fields_unless_columns_were_asked_for() -> None:
    out = io.StringIO()
    assert json.loads(printed(out, Printer(out, as_json=True))) == [row for page in ROWS for row in page]
    out = io.StringIO()
    assert json.loads(printed(out, Printer(out, as_json=True), cut=True))[1] == {
        "name": "[b]",
        "messages": 3,
        "nested.rate": None,
    }


def test_terminal_gets_a_table_with_numbers_to_the_right() -> None:
    out = Terminal()
    lines = printed(out, Printer(out)).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("a "))
    assert lines[at].split() == ["a", "12", "0.2"]
    assert lines[at + 1].split() == ["[b]", "3"]
    assert lines[at].index("2") == lines[at + 1].index("3")


def test_narrow_terminal_breaks_titles_and_long_cells_but_no_names() -> None:
    titles = ("name", "messages_unacknowledged", "arguments")
    drawn = table([["queue-0001-✓", "5", "x" * 90]], titles)
    out = io.StringIO()
    Console(file=out, width=60).print(drawn)
    text = out.getvalue()
    assert "queue-0001-✓" in text
    assert "messages_" in text
    assert "unacknowledged" in text
    assert "x" * 90 not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (5, "5"),
        (5.0, "5"),
        (0.25, "0.2"),
        ({"a": [1]}, '{"a": [1]}'),
        ("tab\tescape\x1b", "tab\\tescape\\x1b"),
    ],
)
def test_values_are_one_line_that_cannot_steer_a_terminal(value: object, text: str) -> None:
    assert cell(value) == text


def test_name_with_a_dot_goes_over_a_nested_column() -> None:
    assert value_at({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert value_at({"a": {"b": 2}}, "a.b") == 2
    assert value_at({"a": 1}, "a.b") is None


# --- the command as a whole ---


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_is_a_command_with_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "pipeline":
        with pytest.raises(SystemExit) as ended:  # it has a parser of its own
            main([name, "--help"])
        assert ended.value.code == 0
    else:
        assert main([name, "--help"]) == 0
    assert "sage: warren " + name in capsys.readouterr().out


def test_commands_are_imported_when_they_are_named() -> None:
    script = (
        "import sys; from warren.cli.main import main; main(['--help']); "
        "print([name for name in sys.modules if name.startswith('warren.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['warren.cli.main']"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_WARREN_COMPLETE" in capsys.readouterr().out


def test_commands_are_completed() -> None:
    from click.shell_completion import ShellComplete

    complete = ShellComplete(warren, {}, "warren", "_WARREN_COMPLETE")
    assert [item.value for item in complete.get_completions(["queues"], "p")] == ["purge"]
