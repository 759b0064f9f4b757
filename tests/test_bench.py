"""The command behind ./scripts/bench: what it prints, and when a check fails. The measures themselves are made by hand only."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from benchmarks import command
from benchmarks.report import Result


def result(name, ratio, limit=2.0):
    return Result(name, ratio, 1.0, "floor", "ms", ratio, limit)


def measured(*rounds):
    """A measure that gives these results, one list each time it is made."""
    left = list(rounds)

    def measure(place):
        yield from left.pop(0)

    return measure


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Run the command with these measures and options; returns its exit code."""

    def bench(measures, *options):
        monkeypatch.setattr(command, "MEASURES", measures)
        monkeypatch.setattr(sys, "argv", ["bench", "--dir", str(tmp_path), *options])
        return command.main()

    return bench


def test_limits_that_are_kept(bench, capsys):
    assert bench({"start": measured([result("to ready", 1.9), result("for information", 9.0, None)])}, "--check") == 0
    out, err = capsys.readouterr()
    assert "to ready" in out
    assert "all limits are kept" in out
    assert err == "measuring start …\n"


def test_a_limit_that_is_exceeded_twice_fails_the_check_and_is_named(bench, capsys):
    measures = {
        "start": measured([result("to ready", 2.6), result("idle", 1)], [result("to ready", 2.7), result("idle", 3)]),
        "turn": measured([result("a turn", 0.9)]),
    }
    assert bench(measures, "--check") == 1
    out, err = capsys.readouterr()
    assert "over the limit:\n  to ready: 2.60 and 2.70, limit 2\n" in out
    assert err == "measuring start …\nmeasuring turn …\nmeasuring start again …\n"


def test_what_is_measured_again_begins_in_an_empty_folder(bench):
    ratios = [2.6, 1.9]

    def measure(place):
        (place.folder / "home").mkdir()
        yield result("to ready", ratios.pop(0))

    assert bench({"start": measure}, "--check") == 0
    assert not ratios


def test_a_limit_that_is_kept_the_second_time_counts_as_kept(bench, capsys):
    assert bench({"start": measured([result("to ready", 2.6)], [result("to ready", 1.9)])}, "--check") == 0
    assert "all limits are kept" in capsys.readouterr().out


def test_without_a_check_nothing_is_measured_again(bench, capsys):
    assert bench({"start": measured([result("to ready", 2.6)])}) == 0
    assert "over the limit:\n  to ready: 2.60, limit 2\n" in capsys.readouterr().out


def test_a_measure_that_fails_is_named_and_the_others_are_made(bench, capsys):
    def broken(place):
        yield result("before", 1.0)
        raise OSError("no server")

    assert bench({"broken": broken, "start": measured([result("to ready", 1.0)])}) == 1
    out, _ = capsys.readouterr()
    assert "before" in out
    assert "to ready" in out
    assert "broken failed: no server\n" in out


def test_the_table_for_the_page_has_what_has_a_limit_as_it_was_measured_last(bench, tmp_path, capsys):
    file = tmp_path / "results.json"
    rounds = measured([result("to ready", 2.6), result("for information", 9.0, None)], [result("to ready", 1.9)])
    assert bench({"start": rounds}, "--check", "--json", str(file)) == 0
    capsys.readouterr()
    assert bench({}, "--table", str(file)) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["| to ready | 1.9 ms | 1 ms floor | 1.90 | 2 |"]
