"""The history file."""

from __future__ import annotations

import stat

from pegasus.terminal.history import HISTORY_KEPT, LONGEST_ENTRY, HistoryFile
from pegasus.terminal.prompt import ChatHistory


def stored(path):
    return list(ChatHistory(HistoryFile(path)).load_history_strings())


def test_what_was_typed_is_there_next_time_newest_first(tmp_path):
    path = tmp_path / "history"
    history = ChatHistory(HistoryFile(path))
    history.append_string("first")
    history.append_string("second\nof two lines 中文")
    assert stored(path) == ["second\nof two lines 中文", "first"]


def test_it_is_readable_by_its_owner_alone(tmp_path):
    path = tmp_path / "history"
    ChatHistory(HistoryFile(path)).append_string("secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_torn_and_foreign_lines_are_skipped(tmp_path):
    path = tmp_path / "history"
    path.write_bytes(b'"good"\n{"not":"text"}\n\xff\xfe\n"torn\n42\n"also good"\n')
    assert stored(path) == ["also good", "good"]


def test_a_file_grown_long_is_trimmed_to_the_newest(tmp_path):
    path = tmp_path / "history"
    path.write_text("".join(f'"{n}"\n' for n in range(2 * HISTORY_KEPT + 1)))
    assert stored(path)[0] == str(2 * HISTORY_KEPT)
    assert len(path.read_text().splitlines()) == HISTORY_KEPT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["history"]


def test_a_pasted_document_is_not_kept(tmp_path):
    path = tmp_path / "history"
    history = ChatHistory(HistoryFile(path))
    history.append_string("x" * (LONGEST_ENTRY + 1))
    assert not path.exists()
    assert history.get_strings() == ["x" * (LONGEST_ENTRY + 1)]


def test_bytes_that_are_no_utf8_do_not_break_it(tmp_path):
    path = tmp_path / "history"
    ChatHistory(HistoryFile(path)).append_string("caf\udce9")
    assert stored(path) == ["caf\ufffd"]


def test_a_history_that_cannot_be_written_is_one_that_is_not_kept(tmp_path):
    history = ChatHistory(HistoryFile(tmp_path / "no such folder" / "history"))
    history.append_string("kept in memory")
    assert history.get_strings() == ["kept in memory"]
    assert stored(tmp_path / "no such folder" / "history") == []
