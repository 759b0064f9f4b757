"""`pegasus sessions`: what people can read of the conversation, with or without a daemon."""

import json

import pytest

from pegasus.conversation.entry import Entry, encode

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


@pytest.mark.parametrize("name", ["2026-02-25-143001.jsonl", "../../token", "x", ""])
def test_what_is_no_session_is_not_shown(pegasus, folder, name):
    (folder.parent.parent / "token").write_text("secret")
    code, out, err = pegasus("sessions", "show", name)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "pegasus sessions list" in err


def test_a_new_home_has_no_sessions(pegasus):
    assert pegasus("sessions", "list")[:2] == (0, "No sessions.\n")
    assert pegasus("sessions", "show")[0] == 1
