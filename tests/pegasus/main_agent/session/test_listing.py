"""Lists of sessions: of all chats, a page at a time, by the files alone."""

from __future__ import annotations

import os

import pytest

from pegasus.conversation.entry import Entry, encode
from pegasus.main_agent.session import CURRENT, chat_files
from pegasus.main_agent.session.listing import COUNTED, find_session, list_sessions
from pegasus.messages import Address
from pegasus.storage import FolderFiles

ARCHIVE = "2026-02-25-143000.jsonl"
TS = 1_772_029_800_000


@pytest.fixture
def home(tmp_path):
    for folder in ("main", "sessions"):
        (tmp_path / folder).mkdir()
    return tmp_path


def put(home, path, *texts, age=0, chat="", more=b""):
    entries = [Entry(TS + n, "user", text, metadata={"chat": chat} if chat else {}) for n, text in enumerate(texts)]
    file = home / path
    file.write_bytes(b"".join(map(encode, entries)) + more)
    os.utime(file, ns=((TS - age) * 10**6,) * 2)


def test_sessions_and_archives_of_all_chats_are_listed_with_their_chats_newest_first(home):
    put(home, "main/current.jsonl", "a", age=5)
    put(home, f"main/{ARCHIVE}", "a", "b", age=6)
    put(home, "sessions/web%3Ac%2F1.jsonl", "hi", age=1)
    put(home, f"sessions/web%3Ac%2F1.{ARCHIVE}", "hi", age=7)
    rows = list_sessions(FolderFiles(home)).rows
    assert [(row.file, row.chat, row.is_archive, row.lines) for row in rows] == [
        ("web%3Ac%2F1.jsonl", "web:c/1", False, 1),
        ("current.jsonl", "", False, 1),
        (ARCHIVE, "", True, 2),
        (f"web%3Ac%2F1.{ARCHIVE}", "web:c/1", True, 1),
    ]
    assert (rows[2].began, rows[2].ended) == (TS, TS + 1)


@pytest.mark.parametrize("name", ["../../x", "a/b", "Ünï", "%41", "a.b~c", "\udc80", "x" * 300])
def test_each_chat_is_found_again_by_its_file_and_by_its_name(home, name):
    address = Address("web", name)
    files = chat_files(address)
    put(home, files.path, "hi", chat=f"web:{name}" if len(name) > 200 else "")
    [row] = list_sessions(FolderFiles(home)).rows
    place = find_session(row.file)
    assert place is not None
    assert (place.files.current, place.name) == (files.current, CURRENT)
    if name != "\udc80":  # not even text; shown as a replacement character
        assert row.chat == str(address)
        assert find_session(row.chat).file == row.file


def test_a_file_that_claims_to_be_of_another_chat_is_not_believed(home):
    files = chat_files(Address("web", "x" * 300))
    put(home, files.path, "hi", chat="cli:main")
    assert list_sessions(FolderFiles(home)).rows[0].chat.startswith("web:xxx")


def test_a_page_opens_no_more_files_than_it_shows(home, monkeypatch):
    for number in range(300):
        put(home, f"sessions/web%3Ac{number}.jsonl", "hi", age=number)
    opened = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *more: opened.append(path) or real(path, *more))
    page = list_sessions(FolderFiles(home), offset=100, limit=50)
    assert [row.chat for row in page.rows] == [f"web:c{number}" for number in range(100, 150)]
    assert (page.total, page.next, len(opened)) == (300, 150, 50)
    assert list_sessions(FolderFiles(home), offset=250).next is None


def test_a_long_file_is_not_read_as_a_whole(home):
    put(home, "sessions/web%3Ac1.jsonl", "hi", "x" * COUNTED, "bye")
    [row] = list_sessions(FolderFiles(home)).rows
    assert (row.lines, row.began, row.ended) == (None, TS, TS + 2)


def test_chats_are_found_by_a_part_of_their_name(home):
    for name in ("web%3Aann", "web%3Abob", "slack%3A%23general"):
        put(home, f"sessions/{name}.jsonl", "hi")
    put(home, "main/current.jsonl", "hi")
    assert [row.chat for row in list_sessions(FolderFiles(home), find="SLACK:#GEN").rows] == ["slack:#general"]
    assert list_sessions(FolderFiles(home), find="nobody").total == 0


def test_what_is_no_session_is_left_out(home):
    put(home, "sessions/web%3Aa.jsonl", "hi")
    for name in ("web%3Aa.jsonl.torn-1", "web%3Aa.jsonl.next", "notes.txt", "current.jsonl", ARCHIVE):
        put(home, f"sessions/{name}", "no")
    put(home, "main/web%3Aa.jsonl", "no")
    (home / "sessions" / "web%3Ab.jsonl").symlink_to(home / "main")
    (home / "sessions" / "web%3Ac.jsonl").mkdir()
    assert [row.file for row in list_sessions(FolderFiles(home)).rows] == ["web%3Aa.jsonl"]


@pytest.mark.parametrize("text", ["", "x", "../../token", "/etc/passwd", "web%3Aa", "web%3Aa.x.jsonl", "%3A.jsonl"])
def test_what_cannot_be_a_session_is_none(text):
    assert find_session(text) is None
