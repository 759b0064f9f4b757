"""The terminal is given back."""

from __future__ import annotations

import os
import sys
import termios
import tty

import pytest

from pegasus.terminal.restore import forget_stdout, restore_terminal, terminal_noted


@pytest.fixture
def slave(monkeypatch):
    master, slave = os.openpty()
    with os.fdopen(slave, "r+b", buffering=0) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield slave
    os.close(master)


def test_modes_that_a_chat_changed_are_brought_back(slave):
    before = termios.tcgetattr(slave)
    with terminal_noted():
        tty.setraw(slave)
        assert termios.tcgetattr(slave) != before
        restore_terminal()
        assert termios.tcgetattr(slave) == before


def test_after_the_chat_there_is_nothing_to_restore(slave):
    with terminal_noted():
        pass
    tty.setraw(slave)
    raw = termios.tcgetattr(slave)
    restore_terminal()
    assert termios.tcgetattr(slave) == raw


def test_it_is_restored_once(slave):
    with terminal_noted():
        restore_terminal()
        tty.setraw(slave)
        raw = termios.tcgetattr(slave)
        restore_terminal()
        assert termios.tcgetattr(slave) == raw


def test_without_a_terminal_nothing_happens(monkeypatch, tmp_path):
    with open(tmp_path / "file", "w+") as file:
        monkeypatch.setattr(sys, "stdin", file)
        with terminal_noted():
            restore_terminal()


def test_a_stdout_that_is_gone_fails_no_more(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        stdout.write("never read")
        with pytest.raises(BrokenPipeError):
            stdout.flush()
        forget_stdout()
        stdout.flush()
