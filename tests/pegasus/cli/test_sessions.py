"""`pegasus sessions`: what people can read of the conversation, with or without a daemon."""

import errno
import io
import json

import pytest

from pegasus.cli.sessions import _session_row, run_show
from pegasus.conversation.entry import Entry, encode
from pegasus.host import resolve_home
from pegasus.settings import Settings

NAME = "2026-02-25-143000.jsonl"
TS = 1_772_029_800_000


@pytest.fixture
def folder(user):
    folder = user / ".pegasus" / "data" / "main"
    folder.mkdir(parents=True)
    return folder


def put(folder, name, *entries, more=b""):
    (folder / name).write_bytes(b"".join(map(encode, entries)) + more)


def a_life(folder):
    put(folder, NAME, Entry(TS - 60_000, "user", "hällo"), Entry(TS, "assistant", "a thought"))
    opening = {"type": "compact", "previousSession": NAME}
    put(folder, "current.jsonl", Entry(TS, "system", "Summary", metadata=opening), more=b'{"torn')


def test_sessions_are_listed_oldest_first(pegasus, folder):
    a_life(folder)
    code, out, _ = pegasus("sessions", "list")
    first, second = out.splitlines()
    assert code == 0
    assert first.startswith(f"{NAME}     2026-02-25 14:29:00 – 2026-02-25 14:30:00  2 lines, ")
    assert second.startswith("current.jsonl")
    assert second.endswith(f"begins with a summary; goes on from {NAME}")


def test_the_list_as_json(pegasus, folder):
    a_life(folder)
    code, out, _ = pegasus("sessions", "list", "--json")
    first, second = json.loads(out)["sessions"]
    assert (code, first["file"], first["lines"], first["began"], first["ended"]) == (0, NAME, 2, TS - 60_000, TS)
    assert (second["summary"], second["previousSession"], second["ended"]) == (True, NAME, None)


def test_a_session_is_shown_with_what_is_damaged_in_it(pegasus, folder):
    a_life(folder)
    code, out, _ = pegasus("sessions", "show", NAME)
    assert code == 0
    assert out.splitlines() == [
        "1. [2026-02-25 14:29:00] user: hällo",
        "2. [2026-02-25 14:30:00] assistant: a thought",
    ]
    code, out, _ = pegasus("sessions", "show")
    assert "system, compact: Summary" in out
    assert "2. (a damaged line" in out


def test_a_session_as_it_is_stored(pegasus, folder):
    a_life(folder)
    code, out, _ = pegasus("sessions", "show", NAME, "--json")
    assert code == 0
    assert out == (folder / NAME).read_text()


def test_each_stored_line_is_a_line_also_one_that_is_torn_or_too_long(pegasus, folder, monkeypatch):
    monkeypatch.setattr("pegasus.cli.sessions.LONGEST_LINE", 100)
    put(folder, NAME, Entry(TS, "user", "x" * 200), Entry(TS, "user", "ok"), more=b'{"torn')
    code, out, _ = pegasus("sessions", "show", NAME, "--json")
    first, second, third = out.splitlines()
    assert (code, len(first), json.loads(second)["content"], third) == (0, 102, "ok", '{"torn')
    assert out.endswith("\n")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_disk_that_is_full_is_not_blamed_on_the_session(folder, monkeypatch, more):
    """What fails is the output, as with `pegasus sessions show > FILE`."""

    class FullDisk(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    put(folder, NAME, Entry(TS, "user", "x"))
    monkeypatch.setattr("sys.stdout", FullDisk())
    with pytest.raises(OSError, match="No space left"):
        run_show(resolve_home(), Settings(), name=NAME, as_json=bool(more))


@pytest.mark.parametrize("name", ["2026-02-25-143001.jsonl", "../../token", "x", ""])
def test_what_is_no_session_is_not_shown(pegasus, folder, name):
    (folder.parent.parent / "token").write_text("secret")
    code, out, err = pegasus("sessions", "show", name)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "pegasus sessions list" in err


def test_the_session_of_a_chat_is_listed_and_shown_by_the_chat(pegasus, folder):
    a_life(folder)
    (folder.parent / "sessions").mkdir()
    put(folder.parent / "sessions", "web%3Aann.jsonl", Entry(TS, "user", "from ann"))
    _, out, _ = pegasus("sessions", "list", "--chat", "ann")
    assert out.startswith("web%3Aann.jsonl")
    assert out.endswith("; chat web:ann\n")
    for name in ("web:ann", "web%3Aann.jsonl"):
        assert pegasus("sessions", "show", name)[1] == "1. [2026-02-25 14:30:00] user: from ann\n"
    assert pegasus("sessions", "show", "web:bob")[0] == 1
    opening = Entry(TS, "user", "goes on", metadata={"type": "compact", "previousSession": NAME})
    put(folder.parent / "sessions", "web%3Aann.jsonl", opening)
    assert f"; goes on from web%3Aann.{NAME}; chat web:ann" in pegasus("sessions", "list", "--chat", "ann")[1]
    _, out, _ = pegasus("sessions", "list", "--limit", "1", "--offset", "1")
    assert out.splitlines()[0] == "… 3 sessions; --offset 2 shows those before these"


def test_a_new_home_has_no_sessions(pegasus):
    assert pegasus("sessions", "list")[:2] == (0, "No sessions.\n")
    assert pegasus("sessions", "show")[0] == 1


@pytest.mark.parametrize(
    ("began", "ended", "shown"),
    [
        (None, None, "no time known"),
        (1_772_020_800_000, None, "since 2026-02-25"),
        (1_772_020_800_000, 1_772_020_800_000, " – "),
    ],
)
def test_a_session_without_an_end_is_shown_without_question_marks(began, ended, shown):
    session = {"file": "current.jsonl", "began": began, "ended": ended, "lines": None, "bytes": 5}
    row = _session_row({**session, "summary": False, "previousSession": None, "chat": None})
    assert shown in row
    assert "?" not in row
