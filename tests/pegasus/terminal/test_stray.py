"""stderr while the prompt is on the screen."""

from __future__ import annotations

import io
import sys
import threading

from pegasus.terminal.stray import LONGEST, StrayLines, stderr_above


class Tty(io.StringIO):
    def isatty(self):
        return True


def test_whole_lines_are_shown_and_a_beginning_waits():
    shown = []
    stray = StrayLines(shown.append, io.StringIO())
    print("one", "two", file=stray)
    stray.write("half")
    assert shown == ["one two"]
    stray.write(" and half\n")
    assert shown == ["one two", "half and half"]


def test_a_line_without_end_is_shown_before_it_fills_memory():
    shown = []
    stray = StrayLines(shown.append, io.StringIO())
    for _ in range(LONGEST // 100 + 1):
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
