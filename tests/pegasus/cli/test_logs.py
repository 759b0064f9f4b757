"""`pegasus logs`."""

from __future__ import annotations

import pytest

from pegasus.cli import logs
from pegasus.host import Home


@pytest.fixture
def log(user):
    home = Home(user / ".pegasus")
    home.prepare()
    home.log.parent.mkdir(exist_ok=True)
    return home.log


def add(log, text):
    with log.open("a") as file:
        file.write(text)


def shown(out: str) -> list[str]:
    return out.splitlines()


def test_the_last_lines_across_files_that_were_renamed(pegasus, log):
    log.write_text("five\nsix\n")
    log.with_name("pegasus.log.1").write_text("three\nfour\n")
    log.with_name("pegasus.log.2").write_text("one\ntwo\n")
    assert shown(pegasus("logs", "-n", "3")[1]) == ["four", "five", "six"]
    assert shown(pegasus("logs")[1]) == ["one", "two", "three", "four", "five", "six"]
    assert pegasus("logs", "-n", "0") == (0, "", "")


def test_lines_longer_than_a_block_and_a_last_one_without_an_end(pegasus, log):
    long = "x" * 200_000
    log.write_text(f"first\n{long}\nlast\ntorn")
    assert shown(pegasus("logs", "-n", "2")[1]) == [long, "last"]


def test_without_a_log_it_says_where_one_would_be(pegasus, user):
    code, out, err = pegasus("logs")
    assert (code, out) == (1, "")
    assert f"there is no log yet ({user}/.pegasus/logs/pegasus.log)" in err


def test_it_works_with_mistakes_in_the_settings(pegasus, log, user):
    (user / ".pegasus" / "pegasus.toml").write_text("nonsense = \n")
    log.write_text("why\n")
    assert pegasus("logs") == (0, "why\n", "")


def test_following_shows_each_line_once_also_over_a_new_file(pegasus, log, monkeypatch):
    """The daemon renames a full file and begins another, while somebody reads; a line may be written in two pieces."""
    log.write_text("old\nbe")
    steps = [
        lambda: add(log, "gun\n"),
        lambda: (
            add(log, "last of the old\n"),
            log.rename(log.with_name("pegasus.log.1")),
            log.write_text("first of the new\n"),
        ),
        lambda: log.write_text(""),  # emptied by somebody
        lambda: log.write_text("after\n"),
    ]

    def pause(_seconds):
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(logs.time, "sleep", pause)
    code, out, _ = pegasus("logs", "-f", "-n", "1")
    assert code == 130
    assert shown(out) == ["old", "begun", "last of the old", "first of the new", "after"]


def test_following_waits_for_a_log_that_is_not_there_yet(pegasus, log, monkeypatch):
    steps = [lambda: None, lambda: log.write_text("begun\n")]

    def pause(_seconds):
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(logs.time, "sleep", pause)
    assert shown(pegasus("logs", "--follow")[1]) == ["begun"]
