"""A snapshot is one moment of `data`, whatever is written while it is taken and read."""

from __future__ import annotations

import fcntl
import os
import threading

import pytest

from pegasus.backup import BackupError, snapshot
from pegasus.backup.snapshot import take_snapshot
from pegasus.storage import FileDisk, Volume
from tests.pegasus.backup.conftest import back_up, restore, write


def content_of(home, taken, path):
    [file] = [file for file in taken.files if file.path == path]
    with taken.read(home, file) as stream:
        return stream.read(file.size)


def test_a_log_that_grows_has_the_bytes_of_the_moment(home):
    write(home, "data/main/current.jsonl", b"1\n")
    with take_snapshot(home, secrets=False) as taken:
        with (home.data / "main/current.jsonl").open("ab") as log:
            log.write(b"2\n")
        assert content_of(home, taken, "data/main/current.jsonl") == b"1\n"


def test_a_file_that_is_replaced_has_the_content_of_the_moment(home):
    write(home, "data/tokens.json", b"old")
    with take_snapshot(home, secrets=False) as taken:
        write(home, "data/tokens.json.tmp", b"new").replace(home.data / "tokens.json")
        assert content_of(home, taken, "data/tokens.json") == b"old"


def test_a_file_that_was_not_open_when_it_was_replaced_makes_another_attempt(home, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "MOST_OPEN", 0)
    write(home, "data/tokens.json", b"old")
    taken, take = [], snapshot.take_snapshot

    def replace_after(home, **more):
        found = take(home, **more)
        taken.append(set(more["held"]))
        write(home, "data/tokens.json.tmp", b"new %d" % len(taken)).replace(home.data / "tokens.json")
        return found

    monkeypatch.setattr(snapshot, "take_snapshot", replace_after)
    back_up(home, tmp_path / "b")
    assert taken == [set(), {"data/tokens.json"}]
    restore(tmp_path / "b", tmp_path / "copy")
    assert (tmp_path / "copy/data/tokens.json").read_bytes() == b"new 1"


def test_a_file_of_the_workspace_that_never_rests_is_copied_first(home, tmp_path, monkeypatch):
    place = write(home, "workspace/busy", b"0" * 10)
    seen = []

    from pegasus.backup import making

    real = making._Contents.read

    def changing(contents, path):
        if path == "workspace/busy":
            seen.append(path)
            place.write_bytes(b"%d" % len(seen) * 10)
        return real(contents, path)

    monkeypatch.setattr(making._Contents, "read", changing)
    back_up(home, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "copy")
    assert len(seen) == 2
    assert (tmp_path / "copy/workspace/busy").read_bytes() == b"1" * 10


def test_a_file_that_vanishes_is_left_out(home, tmp_path, monkeypatch):
    from pegasus.backup import making

    place, real = write(home, "workspace/short-lived", b"0"), making._Contents.described

    def vanishing(contents):
        place.unlink(missing_ok=True)
        return real(contents)

    monkeypatch.setattr(making._Contents, "described", vanishing)
    back_up(home, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "copy")
    assert not (tmp_path / "copy/workspace/short-lived").exists()


async def test_the_journal_writes_before_or_after_it_and_never_during_it(home):
    """A volume that is in the middle of two appends holds the snapshot up."""
    disk, began, go_on = FileDisk(home.data), threading.Event(), threading.Event()
    found = []

    def look():
        began.wait()
        with take_snapshot(home, secrets=False) as taken:
            found.append([content_of(home, taken, f"data/{name}") for name in ("a.jsonl", "b.jsonl")])

    def write_both(volume: Volume):
        volume.append([("a.jsonl", b"1\n")])
        began.set()
        go_on.wait(0.2)
        volume.append([("b.jsonl", b"1\n")])

    looker = threading.Thread(target=look)
    looker.start()
    await disk.run(write_both)
    looker.join()
    assert found == [[b"1\n", b"1\n"]]


async def test_the_journal_goes_on_when_a_backup_was_stopped_in_the_middle(home, monkeypatch):
    monkeypatch.setattr("pegasus.storage.disk._PATIENCE", 3)
    folder = os.open(home.data, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    disk = FileDisk(home.data)
    await disk.run(Volume.append, [("a.jsonl", b"1\n")])
    assert (home.data / "a.jsonl").read_bytes() == b"1\n"
    os.close(folder)


def test_a_writer_that_ignores_the_lock_is_noticed(home, monkeypatch):
    log, looks = write(home, "data/main/current.jsonl", b"1\n"), []
    real = snapshot.Snapshot.hold

    def growing(taken, home, file):
        real(taken, home, file)
        if file.path == "data/main/current.jsonl" and len(looks) < 3:
            looks.append(file)
            with log.open("ab") as stream:
                stream.write(b"2\n")

    monkeypatch.setattr(snapshot.Snapshot, "hold", growing)
    with take_snapshot(home, secrets=False) as taken:
        assert content_of(home, taken, "data/main/current.jsonl") == b"1\n2\n2\n2\n"
    monkeypatch.setattr(snapshot, "_LOOKS", 2)
    looks.clear()
    with pytest.raises(BackupError, match="changes all the time"):
        take_snapshot(home, secrets=False)


def test_a_writer_that_hangs_is_not_waited_for_without_end(home, monkeypatch):
    monkeypatch.setattr(snapshot, "_LOCK_WAIT", 0.01)
    folder = os.open(home.data, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with pytest.raises(BackupError, match="disk hang"):
        take_snapshot(home, secrets=False)
    os.close(folder)
