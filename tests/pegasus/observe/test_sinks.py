"""Files that rotate, streams that may be stuck; neither raises nor waits."""

from __future__ import annotations

import os
import pty
import tty

import pytest

from pegasus.observe.sinks import RotatingFile, Stream


def names(file) -> set[str]:
    return {path.name for path in file.parent.iterdir()}


@pytest.fixture
def rotating(file):
    made = []

    def rotating(max_bytes=100, keep=3):
        made.append(RotatingFile(file, max_bytes=max_bytes, keep=keep))
        return made[-1]

    yield rotating
    for one in made:
        one.close()


def test_a_file_is_private(rotating, file):
    rotating().write(b"x\n")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_full_file_is_set_aside(rotating, file):
    sink = rotating(max_bytes=10)
    for line in (b"aaaaa\n", b"bbb\n", b"ccccc\n"):
        sink.write(line)
    assert file.with_name("pegasus.log.1").read_bytes() == b"aaaaa\nbbb\n"
    assert file.read_bytes() == b"ccccc\n"


def test_only_so_many_files_are_kept_and_the_oldest_goes(rotating, file):
    sink = rotating(max_bytes=2, keep=3)
    for line in (b"1\n", b"2\n", b"3\n", b"4\n", b"5\n"):
        sink.write(line)
    assert names(file) == {"pegasus.log", "pegasus.log.1", "pegasus.log.2"}
    assert [file.with_name(name).read_bytes() for name in sorted(names(file))] == [b"5\n", b"4\n", b"3\n"]


def test_files_of_a_time_when_more_were_kept_are_removed(rotating, file):
    for name in ("pegasus.log.2", "pegasus.log.7", "pegasus.log.40", "pegasus.log.gz", "notes.3"):
        file.with_name(name).write_bytes(b"x")
    rotating(keep=3).write(b"1\n")
    assert names(file) == {"pegasus.log", "pegasus.log.2", "pegasus.log.gz", "notes.3"}


def test_the_size_counts_also_what_a_process_before_wrote(rotating, file):
    file.write_bytes(b"x" * 95)
    rotating(max_bytes=100).write(b"123456\n")
    assert file.read_bytes() == b"123456\n"


def test_a_line_longer_than_a_file_is_written_whole(rotating, file):
    rotating(max_bytes=10).write(b"x" * 50 + b"\n")
    assert len(file.read_bytes()) == 51


def test_a_file_that_cannot_be_set_aside_goes_on_growing(rotating, file):
    (file.parent / "pegasus.log.1").mkdir()
    ((file.parent / "pegasus.log.1") / "x").touch()
    sink = rotating(max_bytes=10, keep=2)
    for _ in range(3):
        sink.write(b"12345678\n")
    assert file.read_bytes() == b"12345678\n" * 3
    assert sink.lost == 0


def test_a_full_disk_costs_lines_and_says_how_many_afterwards(rotating, file):
    file.symlink_to("/dev/full")
    sink = rotating()
    sink.write(b"lost\n")
    sink.write(b"lost\n")
    assert sink.lost == 2
    file.unlink()
    sink.close()
    sink.write(b"back\n")
    assert file.read_bytes() == b"(2 log lines are missing here: they could not be written)\nback\n"
    assert sink.lost == 0


def test_a_line_that_was_written_half_is_ended_before_the_next(rotating, file, monkeypatch):
    sink = rotating()
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    sink.write(b"abcdef\n")
    monkeypatch.undo()
    sink.write(b"next\n")
    assert file.read_bytes() == b"abc\n(1 log lines are missing here: they could not be written)\nnext\n"


def test_a_folder_that_is_not_there_costs_lines_until_it_is(tmp_path):
    sink = RotatingFile(tmp_path / "logs" / "x.log")
    sink.write(b"lost\n")
    (tmp_path / "logs").mkdir()
    sink.write(b"back\n")
    sink.close()
    assert (tmp_path / "logs" / "x.log").read_bytes().endswith(b"back\n")


def test_a_fifo_in_place_of_the_file_is_not_waited_for(rotating, file):
    os.mkfifo(file)
    sink = rotating()
    sink.write(b"lost\n")
    assert sink.lost == 1


# ------------------------------------------------------------------ streams


@pytest.fixture
def pipe():
    ends = list(os.pipe())
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_a_pipe_nobody_reads_is_not_waited_for(pipe):
    sink = Stream(pipe[1])
    line = b"x" * 999 + b"\n"
    for _ in range(200):
        sink.write(line)
    assert sink.lost > 0
    lost = sink.lost
    received = os.read(pipe[0], 1 << 20)
    sink.write(b"back\n")
    received += os.read(pipe[0], 1 << 20)
    assert received.endswith(f"({lost} log lines are missing here: they could not be written)\nback\n".encode())
    assert sink.lost == 0


def test_a_long_line_that_fits_only_in_part_is_ended_before_the_next(pipe):
    sink = Stream(pipe[1])
    sink.write(b"x" * 200_000 + b"\n")
    assert sink.lost == 1
    os.read(pipe[0], 1 << 20)
    sink.write(b"next\n")
    assert os.read(pipe[0], 1 << 20).startswith(b"\n(1 log lines")


def test_a_reader_that_left_is_given_up(pipe):
    os.close(pipe[0])
    sink = Stream(pipe[1])
    sink.write(b"x\n")
    sink.write(b"x\n")
    assert sink.lost == 0


def test_a_terminal_that_is_stopped_is_not_waited_for():
    """Ctrl-S must not stop the daemon."""
    leader, follower = pty.openpty()
    tty.setraw(follower)
    sink = Stream(follower)
    for _ in range(5_000):  # more than the kernel keeps, however late it hands it on
        sink.write(b"x" * 99 + b"\n")
    assert sink.lost > 0
    os.close(leader)
    os.close(follower)
