"""The table of `./scripts/judges`, which README.md shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from benchmarks.workplace import Workplace
from judging import command
from judging.verdict import Judge, NotHereError, Verdict


def found_something(place: Workplace) -> Iterator[Verdict]:
    yield Verdict("server", 30, skipped=2)
    yield Verdict("client", 8, failed=1, details="initialize: no version")


def cannot_be_had(place: Workplace) -> Iterator[Verdict]:
    raise NotHereError("Node.js is not installed")
    yield


def breaks(place: Workplace) -> Iterator[Verdict]:
    yield Verdict("server", 1)
    raise RuntimeError("no daemon")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    judges = (
        Judge("found", "MCP", "suite 1.2", found_something),
        Judge("missing", "A2A", "kit 3", cannot_be_had),
        Judge("broken", "ACP", "client 4", breaks),
    )
    monkeypatch.setattr(command, "JUDGES", judges)
    monkeypatch.setattr("sys.argv", ["judges", *arguments])
    return command.main()


def test_the_table_says_what_passed_what_was_not_to_be_had_and_who_failed_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[2:] == [
        "| MCP: server | suite 1.2 | 30 | 0 | 2 |",
        "| MCP: client | suite 1.2 | 8 | 1 | 0 |",
        "| A2A: not to be had: Node.js is not installed | kit 3 | | | |",
        "| ACP: server | client 4 | 1 | 0 | 0 |",
        "| ACP: did not come to an end | client 4 | | | |",
    ]
    assert "initialize: no version" in printed.err
    assert "no daemon" in printed.err


def test_a_judge_that_cannot_be_had_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "missing") == 0


def test_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "other")
    assert "known: found, missing, broken" in capsys.readouterr().err


def test_the_table_is_written_into_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{command.BEGIN}old\n{command.END}after\n")
    monkeypatch.setattr(command, "PAGE", page)
    run(monkeypatch, "--write")
    written = page.read_text()
    assert written.startswith(f"before\n{command.BEGIN}\n| what |")
    assert written.endswith(f"| | | |\n\n{command.END}after\n")
    assert "old" not in written


def judges_of(page: str) -> set[str]:
    """What the table of a page says about judges: protocol and program of each row."""
    table = page.partition(command.BEGIN)[2].partition(command.END)[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    return {f"{what.removeprefix('| ').partition(':')[0]}: {program}" for what, program, *_ in rows}


def test_the_table_names_no_judge_that_does_not_exist() -> None:
    known = {f"{judge.protocol}: {judge.program}" for judge in command.JUDGES}
    table = command.format_table([command.Outcome(judge, missing="why") for judge in command.JUDGES])
    assert judges_of(f"{command.BEGIN}\n{table}\n{command.END}") == known
    assert judges_of(command.PAGE.read_text("utf-8")) <= known


def test_a_page_without_a_place_for_the_table_is_left() -> None:
    with pytest.raises(ValueError, match="the page has no lines"):
        command.replace_table("no marks", "table")
