"""The terminal is given back, and stderr appears above the prompt."""

from __future__ import annotations

import io
import os
import sys
import termios
import threading
import tty

import pytest

from pegasus.terminal.tty import (
    LONGEST_LINE,
    StderrLines,
    restore_terminal,
    stderr_above,
    terminal_modes_saved,
)


@pytest.fixture
def slave(monkeypatch):
    master, slave = os.openpty()
    with os.fdopen(slave, "r+b", buffering=0) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield slave
    os.close(master)


def test_modes_that_a_chat_changed_are_brought_back(slave):
    before = termios.tcgetattr(slave)
    with terminal_modes_saved():
        tty.setraw(slave)
        assert termios.tcgetattr(slave) != before
        restore_terminal()
        assert termios.tcgetattr(slave) == before


def test_after_the_chat_there_is_nothing_to_restore(slave):
    with terminal_modes_saved():
        pass
    tty.setraw(slave)
    raw = termios.tcgetattr(slave)
    restore_terminal()
    assert termios.tcgetattr(slave) == raw


def test_it_is_restored_once(slave):
    with terminal_modes_saved():
        restore_terminal()
        tty.setraw(slave)
        raw = termios.tcgetattr(slave)
        restore_terminal()
        assert termios.tcgetattr(slave) == raw


def test_without_a_terminal_nothing_happens(monkeypatch, tmp_path):
    with open(tmp_path / "file", "w+") as file:
        monkeypatch.setattr(sys, "stdin", file)
        with terminal_modes_saved():
            restore_terminal()


# ------------------------------------------------------------------ stderr while the prompt is on the screen


class Tty(io.StringIO):
    def isatty(self):
        return True


def test_whole_lines_are_shown_and_a_beginning_waits():
    shown = []
    stray = StderrLines(shown.append, io.StringIO())
    print("one", "two", file=stray)
    stray.write("half")
    assert shown == ["one two"]
    stray.write(" and half\n")
    assert shown == ["one two", "half and half"]


def test_a_line_without_end_is_shown_before_it_fills_memory():
    shown = []
    stray = StderrLines(shown.append, io.StringIO())
    for _ in range(LONGEST_LINE // 100 + 1):
        stray.write("x" * 100)
    assert len(shown) == 1


def test_stderr_is_caught_only_while_the_block_runs(monkeypatch):
    original = Tty()
    monkeypatch.setattr(sys, "stderr", original)
    shown = []
    with stderr_above(shown.append):
        kept = sys.stderr
        thread = threading.Thread(target=lambda: print("from a thread", file=sys.stderr))
        thread.start()
        thread.join()
        sys.stderr.write("torn")
    assert sys.stderr is original
    kept.write(" and whole\n")
    assert shown == ["from a thread"]
    assert original.getvalue() == "torn and whole\n"


def test_a_stderr_that_is_no_terminal_is_left_alone(monkeypatch):
    original = io.StringIO()
    monkeypatch.setattr(sys, "stderr", original)
    with stderr_above(lambda text: None):
        assert sys.stderr is original
