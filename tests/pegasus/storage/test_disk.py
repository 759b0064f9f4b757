"""The real disk: descriptors, folders, faults of the operating system, and the thread that does the work."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest
import trio

from pegasus.storage import files as files_module
from pegasus.storage.disk import FileDisk
from pegasus.storage.files import OsFiles
from pegasus.storage.messages import Commit, StorageError
from pegasus.storage.volume import Span, Volume
from pegasus.testing.memory_disk import MemoryDisk

from .conftest import run_journal


@pytest.fixture
async def disk(tmp_path):
    return FileDisk(tmp_path / "data")


@pytest.fixture
def volume(tmp_path):
    return Volume(OsFiles(tmp_path), str(tmp_path))


def fds():
    return len(os.listdir("/proc/self/fd"))


def refuse(monkeypatch, name, error, calls=1, path_part=""):
    """Let the next calls of `os.<name>` (or the sync) fail."""
    left = [calls]
    target = files_module if name == "_sync" else os
    real = getattr(target, name)

    def failing(*args, **kwargs):
        if left[0] and path_part in str(args[0]):
            left[0] -= 1
            raise OSError(error, os.strerror(error))
        return real(*args, **kwargs)

    monkeypatch.setattr(target, name, failing)


# ------------------------------------------------------------------ OsFiles and Volume on a real file system


def test_files_and_folders_are_the_owners_only(volume, tmp_path):
    volume.append([("a/b/x", b"1\n")])
    assert stat.S_IMODE((tmp_path / "a/b/x").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700


def test_appends_add_up(volume, tmp_path):
    assert volume.append([("x", b"1\n"), ("y", b"2\n")]) == [0, 0]
    assert volume.append([("x", b"3\n")]) == [2]
    assert (tmp_path / "x").read_bytes() == b"1\n3\n"


def test_what_was_there_before_is_kept(volume, tmp_path):
    (tmp_path / "x").write_bytes(b"old\n")
    assert volume.append([("x", b"new\n")]) == [4]
    assert (tmp_path / "x").read_bytes() == b"old\nnew\n"


@pytest.mark.parametrize("vanish", ["unlink", "rename", "replace"])
def test_a_file_that_was_changed_under_us_is_noticed(volume, tmp_path, vanish):
    volume.append([("x", b"old\n")])
    if vanish == "unlink":
        (tmp_path / "x").unlink()
    elif vanish == "rename":
        (tmp_path / "x").rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "edited").write_bytes(b"edited\n")
        (tmp_path / "edited").rename(tmp_path / "x")
    before = b"edited\n" if vanish == "replace" else b""
    assert volume.append([("x", b"new\n")]) == [len(before)]
    assert (tmp_path / "x").read_bytes() == before + b"new\n"


def test_a_file_that_was_cut_under_us_is_appended_to_at_its_end(volume, tmp_path):
    volume.append([("x", b"old\n")])
    os.truncate(tmp_path / "x", 0)
    assert volume.append([("x", b"new\n")]) == [0]


def test_no_descriptors_stay_open(volume, tmp_path, monkeypatch):
    before = fds()
    for n in range(50):
        volume.append([(f"tasks/{n % 10}", b"%d\n" % n)])
    refuse(monkeypatch, "_sync", errno.EIO, calls=2)
    with pytest.raises(StorageError):
        volume.append([("tasks/3", b"x\n")])
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError):
        volume.read("folder")
    volume.replace("whole", b"new\n")
    assert volume.read("tasks/3") == b"3\n13\n23\n33\n43\n"
    assert fds() == before


async def test_a_request_over_two_files_keeps_its_order_whoever_else_writes(disk, monkeypatch):
    synced = []
    real = files_module._sync

    def note(fd):
        name = os.readlink(f"/proc/self/fd/{fd}")
        synced.append((os.path.basename(name), Path(name).read_bytes()))
        real(fd)

    async with run_journal(disk) as journal:
        for path in ("a", "b", "c"):
            await journal.append(path, b"1\n")
        monkeypatch.setattr(files_module, "_sync", note)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.append, "b", b"2\n")
            nursery.start_soon(journal.ask, Commit, (("c", b"2\n"), ("b", b"3\n")))
        monkeypatch.undo()
    # Whichever of the two comes first, and whether they share a batch: the second file is synced after the first.
    assert synced.index(("c", b"1\n2\n")) < [b"3" in content for name, content in synced].index(True)


def test_a_new_files_folder_is_synced_once(volume, monkeypatch):
    synced = []
    real = files_module._sync_folder
    monkeypatch.setattr(
        files_module, "_sync_folder", lambda folder: (synced.append(os.path.basename(folder)), real(folder))
    )
    volume.append([("a/b/x", b"1\n")])
    assert synced[-3:] == [os.path.basename(str(volume._name)), "a", "b"]
    synced.clear()
    volume.append([("a/b/x", b"2\n")])
    assert synced == []


def test_a_short_write_is_continued(volume, tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    volume.append([("x", b"0123456789\n")])
    assert (tmp_path / "x").read_bytes() == b"0123456789\n"


def test_a_short_write_followed_by_a_full_disk_leaves_nothing(volume, tmp_path, monkeypatch):
    volume.append([("x", b"old\n")])
    real = os.write
    calls = []

    def write(fd, data):
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, bytes(data)[:3])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageError):
        volume.append([("x", b"0123456789\n")])
    assert (tmp_path / "x").read_bytes() == b"old\n"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("name", ["write", "_sync"])
def test_an_error_cuts_all_files_of_the_batch_back(volume, tmp_path, monkeypatch, name, error):
    volume.append([("x", b"old\n"), ("y", b"old\n")])
    real = getattr(files_module if name == "_sync" else os, name)
    calls = []

    def second_fails(*args):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(error, os.strerror(error))
        return real(*args)

    monkeypatch.setattr(files_module if name == "_sync" else os, name, second_fails)
    with pytest.raises(StorageError, match=os.strerror(error)):
        volume.append([("x", b"new\n"), ("y", b"new\n")])
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes() == b"old\n"
    assert volume.append([("x", b"new\n"), ("y", b"new\n")]) == [4, 4]


def test_a_limit_on_file_size_is_an_error_like_a_full_disk(tmp_path):
    """In a process of its own, since the limit is the process's. Python ignores SIGXFSZ, so the write says EFBIG."""
    import subprocess
    import sys

    script = f"""
import resource
from pegasus.storage.files import OsFiles
from pegasus.storage.messages import Commit, StorageError
from pegasus.storage.volume import Volume
volume = Volume(OsFiles({str(tmp_path)!r}), "")
volume.append([("x", b"old\\n")])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    volume.append([("y", b"y"), ("x", b"z" * 5000)])
except StorageError as error:
    print(error)
volume.append([("x", b"new\\n")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert "File too large" in done.stdout
    assert (tmp_path / "x").read_bytes() == b"old\nnew\n"
    assert (tmp_path / "y").read_bytes() == b""


def test_a_folder_in_the_place_of_a_file_is_named(volume, tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(StorageError, match="/x: Is a directory; a folder is in the place of a file"):
        volume.append([("x", b"1\n")])
    with pytest.raises(StorageError, match=r"cannot read .*/x: Is a directory"):
        volume.read("x")


def test_a_fifo_in_the_place_of_a_file_is_named_and_blocks_nobody(volume, tmp_path):
    os.mkfifo(tmp_path / "x")
    with pytest.raises(StorageError, match=r"/x: .*; something else is in the place of a file"):
        volume.append([("x", b"1\n")])
    with pytest.raises(StorageError, match=r"cannot read .*/x: not a regular file; something else"):
        volume.read("x")


def test_a_file_in_the_place_of_a_folder_is_named(volume, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(StorageError, match="/a/x: Not a directory"):
        volume.append([("a/x", b"1\n")])


def test_a_file_that_may_not_be_read_says_what_to_do(volume, monkeypatch):
    def refuse(*args):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(
        StorageError, match=r"cannot read .*/x: Permission denied; it must belong to the user who runs pegasus"
    ):
        volume.read("x")


def test_replace_archive_and_spans_on_real_files(volume, tmp_path):
    volume.append([("m/c", b"one\ntwo\n")])
    assert volume.read_spans("m/c", [Span(4, 4)]) == [b"two\n"]
    assert volume.rewrite("m/c", [b"head\n", Span(4, 4)]) == 9
    assert volume.append([("m/c", b"three\n")]) == [9]
    assert volume.archive("m/c", b"new\n", 0) == "1970-01-01-000000.jsonl"
    assert volume.append([("m/c", b"more\n")]) == [4]
    volume.replace("m/c", b"replaced\n")
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == {
        "1970-01-01-000000.jsonl": b"head\ntwo\nthree\n",
        "c": b"replaced\n",
    }


def test_large_files_are_rewritten_in_pieces(volume, tmp_path):
    line = b"x" * 99_999 + b"\n"
    volume.append([("x", line * 30)])
    assert volume.rewrite("x", [Span(n * 100_000, 100_000) for n in range(30)]) == 3_000_000
    assert (tmp_path / "x").read_bytes() == line * 30


# ------------------------------------------------------------------ the thread


async def test_work_is_done_off_the_event_loop(disk):
    seen = []

    for _ in range(20):
        await disk.run(lambda volume: seen.append(threading.current_thread()))
    assert len(seen) == 20
    assert threading.main_thread() not in seen


async def test_results_and_errors_come_back(disk):
    assert await disk.run(Volume.append, [("x", b"1\n")]) == [0]
    with pytest.raises(ZeroDivisionError):
        await disk.run(lambda volume: 1 // 0)
    assert await disk.run(Volume.read, "x") == b"1\n"


async def test_a_cancelled_caller_leaves_no_half_written_batch(disk):
    begun, go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def slow(volume):
        token.run_sync_soon(begun.set)
        go_on.wait(10)
        return volume.append([("x", b"1\n"), ("y", b"2\n")])

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def caller():
                assert await disk.run(slow) == [0, 0]

            nursery.start_soon(caller)
            await begun.wait()
            scope.cancel()
            go_on.set()
    assert await disk.run(Volume.read, "y") == b"2\n"


async def test_work_asked_for_under_a_cancelled_scope_is_done_too(disk):
    with trio.CancelScope() as scope:
        scope.cancel()
        await disk.run(Volume.append, [("x", b"1\n")])
    assert await disk.run(Volume.read, "x") == b"1\n"


def test_one_disk_serves_several_runs(tmp_path):
    disk = FileDisk(tmp_path)
    for n in range(2):
        trio.run(disk.run, Volume.append, [("x", b"%d\n" % n)])
    assert (tmp_path / "x").read_bytes() == b"0\n1\n"


# ------------------------------------------------------------------ the disk in memory


async def test_a_slow_disk_in_memory_takes_virtual_time(autojump_clock):
    disk = MemoryDisk(delay=3)
    begun = trio.current_time()
    await disk.run(Volume.append, [("x", b"1\n")])
    assert trio.current_time() == begun + 3


async def test_a_torn_part_survives_a_crash_as_written_or_as_nulls():
    for nulls, rest in ((False, b"ne"), (True, b"\0\0")):
        disk = MemoryDisk()
        await disk.run(Volume.append, [("x", b"old\n")])
        disk.files.append_unsynced("x", b"new\n")
        disk.crash(2, nulls=nulls)
        assert disk.content("x") == b"old\n" + rest


async def test_faults_are_counted_from_the_next_operation():
    disk = MemoryDisk()
    await disk.run(Volume.append, [("x", b"1\n")])
    disk.fail(2)
    with pytest.raises(StorageError, match="No space left"):
        await disk.run(Volume.append, [("x", b"2\n")])
    await disk.run(Volume.append, [("x", b"2\n")])
    assert disk.content("x") == b"1\n2\n"
    assert disk.fsyncs >= 3
