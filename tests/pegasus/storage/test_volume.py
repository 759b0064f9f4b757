"""All or nothing: appends, replacing and archiving, with a fault or a power loss at every operation."""

from __future__ import annotations

import errno

import pytest

from pegasus.storage.files import OsFiles
from pegasus.storage.messages import StorageError
from pegasus.storage.volume import Span, Volume
from pegasus.testing.memory_disk import MemoryFiles, PowerLoss

AT = 1_772_029_800_123  # 2026-02-25 14:30:00.123 UTC
NEVER = 1 << 30


@pytest.fixture
def files():
    return MemoryFiles()


@pytest.fixture
def volume(files):
    return Volume(files, "data")


def every_fault(work, setup, kind=errno.ENOSPC, times=1):
    """Yields (files, volume) after `work` failed at its 1st, 2nd … operation, until it no longer fails."""
    for operation in range(1, 100):
        files = MemoryFiles()
        volume = Volume(files, "data")
        setup(volume)
        if isinstance(kind, int):
            files.fail(operation, OSError(kind, "fault"), times)
        else:
            files.fail(operation, kind(), NEVER * NEVER)
        try:
            work(volume)
        except (StorageError, PowerLoss):
            yield files, volume
        else:
            return
    pytest.fail("no end of operations")


def fresh(setup):
    """The same with nothing that fails."""
    files = MemoryFiles()
    volume = Volume(files, "data")
    setup(volume)
    return files, volume


# ------------------------------------------------------------------ append


def test_an_append_creates_file_and_folder_and_gives_offsets(volume, files):
    assert volume.append([("a/b/x", b"1\n"), ("y", b"2\n")]) == [0, 0]
    assert volume.append([("a/b/x", b"333\n"), ("y", b"4\n")]) == [2, 2]
    files.crash(0, False)
    assert files.content("a/b/x") == b"1\n333\n"
    assert files.content("y") == b"2\n4\n"


def test_each_file_is_synced_once(volume, files):
    volume.append([("x", b"1\n"), ("y", b"2\n")])
    assert files.fsyncs == 2


def test_an_append_makes_durable_what_a_killed_process_has_left_in_the_file(volume, files):
    files.append_unsynced("x", b"1\n")
    volume.append([("x", b"2\n")])
    files.crash(0, False)
    assert files.content("x") == b"1\n2\n"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_a_fault_at_any_operation_leaves_nothing_behind_and_the_next_append_works(error):
    def setup(volume):
        volume.append([("x", b"old\n"), ("y", b"old\n")])

    def work(volume):
        volume.append([("x", b"new\n"), ("z/new", b"new\n"), ("y", b"new\n")])

    tried = 0
    for files, volume in every_fault(work, setup, error):
        tried += 1
        assert files.content("x") == files.content("y") == b"old\n"
        assert files.content("z/new") == b""
        volume.append([("x", b"next\n"), ("z/new", b"next\n")])
        files.crash(0, False)
        assert files.content("x") == b"old\nnext\n"
        assert files.content("z/new") == b"next\n"
    assert tried >= 7


@pytest.mark.parametrize("times", [2, 3, 4, 5, 6])
def test_when_even_cutting_back_fails_the_next_append_cuts_first(times):
    def setup(volume):
        volume.append([("x", b"old\n"), ("y", b"old\n")])

    def work(volume):
        volume.append([("x", b"new\n"), ("y", b"new\n")])

    for files, volume in every_fault(work, setup, errno.EIO, times):
        while True:
            try:
                volume.append([("x", b"next\n"), ("y", b"next\n")])
                break
            except StorageError:
                continue
        assert files.content("x") == files.content("y") == b"old\nnext\n"
        files.crash(0, False)
        assert files.content("x") == files.content("y") == b"old\nnext\n"


def test_data_behind_a_failed_sync_is_written_again_not_trusted(volume, files):
    """The kernel reports a failed sync once and then takes the pages for clean."""
    volume.append([("x", b"old\n")])
    files.fail(2, OSError(errno.EIO, "fault"), 1)
    with pytest.raises(StorageError):
        volume.append([("x", b"new\n")])
    volume.append([("x", b"new\n")])
    files.crash(0, False)
    assert files.content("x") == b"old\nnew\n"


def test_a_power_loss_at_any_operation_leaves_a_prefix():
    def setup(volume):
        volume.append([("x", b"old\n"), ("y", b"old\n")])

    def work(volume):
        volume.append([("x", b"new\n"), ("y", b"new\n")])

    for torn in (0, 1, 3, 100):
        seen = set()
        for files, _ in every_fault(work, setup, PowerLoss):
            files.crash(torn, False)
            x, y = files.content("x"), files.content("y")
            assert x.startswith(b"old\n")
            assert y == b"old\n" or x == b"old\nnew\n"
            seen.add((x, y))
        assert len(seen) > 1


def test_files_of_a_step_are_written_before_the_first_is_synced(volume, files):
    assert volume.append_steps([[("x", b"1\n")], [("a/y", b"2\n"), ("a/z", b"3\n")]]) == [0, 0, 0]
    assert files.fsyncs == 3
    files.fail(5, OSError(errno.EIO, "the sync of x, then writing y and z, then the sync of y"), 1)
    with pytest.raises(StorageError):
        volume.append_steps([[("x", b"4\n")], [("a/y", b"5\n"), ("a/z", b"6\n")]])
    files.crash(0, False)
    assert [files.content(path) for path in ("x", "a/y", "a/z")] == [b"1\n", b"2\n", b"3\n"]


@pytest.mark.parametrize("times", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_fault_at_any_operation_of_a_step_leaves_nothing_behind(error, times):
    def setup(volume):
        volume.append([("x", b"old\n"), ("y", b"old\n"), ("z", b"old\n")])

    def work(volume):
        volume.append_steps([[("x", b"new\n")], [("y", b"new\n"), ("z", b"new\n"), ("a/new", b"new\n")]])

    tried = 0
    for files, volume in every_fault(work, setup, error, times):
        tried += 1
        while True:
            try:
                volume.append_steps([[(path, b"next\n") for path in ("x", "y", "z", "a/new")]])
                break
            except StorageError:
                continue
        files.crash(0, False)
        assert [files.content(path) for path in ("x", "y", "z", "a/new")] == [b"old\nnext\n"] * 3 + [b"next\n"]
    assert tried >= 9


def test_a_power_loss_leaves_nothing_of_a_step_before_the_one_in_front_of_it_is_whole():
    def setup(volume):
        volume.append([("x", b"old\n"), ("y", b"old\n"), ("z", b"old\n")])

    def work(volume):
        volume.append_steps([[("x", b"new\n")], [("y", b"new\n"), ("z", b"new\n")]])

    for torn in (0, 1, 3, 100):
        for files, _ in every_fault(work, setup, PowerLoss):
            files.crash(torn, False)
            x, y, z = (files.content(path) for path in "xyz")
            assert all(b"old\nnew\n".startswith(content) and content.startswith(b"old\n") for content in (x, y, z))
            assert y == z == b"old\n" or x == b"old\nnew\n"


def test_a_step_of_many_files_has_few_of_them_open_at_once(tmp_path):
    count = most = 0

    class Counting(OsFiles):
        def prepare(self, path):
            nonlocal count, most
            count += 1
            most = max(most, count)
            return super().prepare(path)

        def close(self, path):
            nonlocal count
            count -= path in self._open
            super().close(path)

    volume = Volume(Counting(tmp_path), "data")
    for n in range(2):
        assert volume.append_steps([[(f"a/{n}", b"1\n") for n in range(150)]]) == [2 * n] * 150
    assert most <= 64
    assert count == 0
    assert {path.read_bytes() for path in (tmp_path / "a").iterdir()} == {b"1\n1\n"}


def test_one_of_many_syncs_that_fails_is_an_error_and_the_others_have_ended(tmp_path, monkeypatch):
    synced = []

    def sync(fd):
        synced.append(fd)
        if len(synced) == 3:
            raise OSError(errno.EIO, "fault")

    volume = Volume(OsFiles(tmp_path), "data")
    monkeypatch.setattr("pegasus.storage.files._sync", sync)
    with pytest.raises(StorageError, match="fault; the disk may be failing"):
        volume.append_steps([[(f"a/{n}", b"1\n") for n in range(40)]])
    assert {path.read_bytes() for path in (tmp_path / "a").iterdir()} == {b""}
    assert volume.append_steps([[(f"a/{n}", b"2\n") for n in range(40)]]) == [0] * 40


def test_the_error_names_file_cause_and_what_to_do(volume, files):
    files.capacity = 0
    with pytest.raises(StorageError, match=r"cannot write data/a/x: No space left on device; free some space"):
        volume.append([("a/x", b"1\n")])


def test_a_full_disk_takes_what_fits_once_there_is_space(volume, files):
    files.capacity = 10
    with pytest.raises(StorageError):
        volume.append([("x", b"too much for it\n")])
    assert files.content("x") == b""
    volume.append([("x", b"fits\n")])
    files.capacity = 100
    volume.append([("x", b"too much for it\n")])
    assert files.content("x") == b"fits\ntoo much for it\n"


# ------------------------------------------------------------------ replace and rewrite


def test_replace_is_durable_and_leaves_no_temporary_file(volume, files):
    volume.append([("x", b"old\n")])
    volume.replace("x", b"new\n")
    files.crash(0, False)
    assert files.content("x") == b"new\n"
    assert set(files.names) == {"x"}


def test_replace_at_any_fault_or_power_loss_is_old_or_new_never_between():
    def setup(volume):
        volume.append([("x", b"old\n")])

    def work(volume):
        volume.replace("x", b"new\n")

    for files, volume in every_fault(work, setup):
        assert files.content("x") in (b"old\n", b"new\n")
        work(volume)
        assert set(files.names) == {"x"}
        files.crash(0, False)
        assert files.content("x") == b"new\n"
    for torn in (0, 1, 100):
        for files, _ in every_fault(work, setup, PowerLoss):
            files.crash(torn, False)
            assert files.content("x") in (b"old\n", b"new\n")


def test_a_temporary_file_left_by_a_crash_is_written_over(volume, files):
    files.put("x.tmp", b"half of something lo")
    volume.replace("x", b"new\n")
    assert files.content("x") == b"new\n"


def test_what_is_appended_after_a_replace_is_in_the_new_file(volume, files):
    volume.append([("x", b"old\n")])
    volume.replace("x", b"new\n")
    assert volume.append([("x", b"more\n")]) == [4]
    files.crash(0, False)
    assert files.content("x") == b"new\nmore\n"


def test_rewrite_copies_spans_of_the_old_file(volume, files):
    volume.append([("x", b"one\ntwo\nthree\n")])
    assert volume.rewrite("x", [b"head\n", Span(4, 4), Span(8, 6)]) == 15
    assert files.content("x") == b"head\ntwo\nthree\n"


def test_rewrite_refuses_a_span_that_is_not_there(volume, files):
    volume.append([("x", b"one\n")])
    with pytest.raises(StorageError, match="shorter than it was"):
        volume.rewrite("x", [Span(0, 400)])
    assert files.content("x") == b"one\n"
    assert set(files.names) == {"x"}


def test_after_a_rewrite_no_append_is_trusted_to_a_name_that_is_not_durable():
    def setup(volume):
        volume.append([("x", b"old\n")])

    def work(volume):
        volume.rewrite("x", [Span(0, 4)])
        volume.append([("x", b"more\n")])

    for kind in (errno.EIO, PowerLoss):
        for files, volume in every_fault(work, setup, kind):
            if kind is errno.EIO:
                volume.append([("x", b"more\n")])
            files.crash(0, False)
            assert files.content("x") == (b"old\nmore\n" if kind is errno.EIO else b"old\n")


@pytest.mark.parametrize("change", ["replace", "archive"])
def test_a_name_that_a_killed_process_left_undurable_is_made_durable_before_anything_is_appended(change):
    """Or a power failure would bring back the old file, without what was appended to the new one since."""

    def work(volume):
        if change == "replace":
            volume.replace("main/s", b"new\n")
        else:
            volume.archive("main/s", b"new\n", AT)

    for files, _ in every_fault(work, lambda volume: volume.replace("main/s", b"old\n"), PowerLoss):
        files.end_faults()  # the process was killed, the machine goes on
        Volume(files, "data").append((("main/s", b"1\n"),))
        before = files.content("main/s")
        files.crash(0, nulls=False)
        assert files.content("main/s") == before


def test_a_rewrite_whose_new_name_is_not_durable_yet_is_made_so_by_the_next_append(volume, files):
    volume.append([("x", b"old\n")])
    files.fail(5, OSError(errno.EIO, "the folder's sync"), 1)
    volume.rewrite("x", [b"new\n"])
    assert files.operations == 9
    files.fail(1, OSError(errno.EIO, "the folder's sync"), 1)
    with pytest.raises(StorageError):
        volume.append([("x", b"more\n")])
    volume.append([("x", b"more\n")])
    files.crash(0, False)
    assert files.content("x") == b"new\nmore\n"


# ------------------------------------------------------------------ archive


def test_an_archive_is_named_by_its_time_in_utc(volume, files):
    volume.append([("main/current.jsonl", b"old\n")])
    assert volume.archive("main/current.jsonl", b"new\n", AT) == "2026-02-25-143000.jsonl"
    files.crash(0, False)
    assert files.content("main/2026-02-25-143000.jsonl") == b"old\n"
    assert files.content("main/current.jsonl") == b"new\n"


def test_archives_of_one_second_do_not_collide(volume, files):
    names = []
    for n in range(4):
        volume.append([("main/current.jsonl", b"%d\n" % n)])
        names.append(volume.archive("main/current.jsonl", b"", AT))
    assert names == ["2026-02-25-143000.jsonl", *(f"2026-02-25-143000-{n}.jsonl" for n in (2, 3, 4))]
    assert [files.content(f"main/{name}") for name in names] == [b"0\n", b"1\n", b"2\n", b"3\n"]


def test_where_there_is_no_file_there_is_no_archive(volume, files):
    assert volume.archive("main/current.jsonl", b"new\n", AT) == ""
    assert set(files.names) == {"main/current.jsonl"}


def test_an_archive_holds_nothing_of_what_was_refused(volume, files):
    volume.append([("m/c", b"0\n")])
    files.fail(2, OSError(errno.EIO, "fault"), 2)  # the sync, and what would have undone it
    with pytest.raises(StorageError):
        volume.append([("m/c", b"refused\n")])
    archived = volume.archive("m/c", b"", AT)
    files.crash(0, False)
    assert files.content(f"m/{archived}") == b"0\n"


def test_an_archive_that_fails_leaves_the_file_as_it_was_and_can_be_tried_again():
    def setup(volume):
        volume.append([("m/c", b"old\n")])

    def work(volume):
        return volume.archive("m/c", b"new\n", AT)

    for files, volume in every_fault(work, setup):
        assert files.content("m/c") == b"old\n"
        assert set(files.names) == {"m/c"}
        assert work(volume) == "2026-02-25-143000.jsonl"
        files.crash(0, False)
        assert files.content("m/c") == b"new\n"


def archive_old(volume):
    volume.append([("m/c", b"old\n")])


def archive_it(volume):
    volume.archive("m/c", b"new\n", AT)


def what_is_there(files):
    """What a process that starts now finds: the archive, and the file as it is read."""
    current = Volume(files, "data").read("m/c")
    return files.content("m/2026-02-25-143000.jsonl"), current


@pytest.mark.parametrize("torn_bytes", [0, 2, 100])
def test_a_power_loss_while_archiving_leaves_the_old_state_or_the_new_one(torn_bytes):
    for files, _ in every_fault(archive_it, archive_old, PowerLoss):
        files.crash(torn_bytes, False)
        assert what_is_there(files) in {(b"", b"old\n"), (b"old\n", b"new\n")}


def test_a_kill_while_archiving_leaves_the_old_state_or_the_new_one():
    """Names are there as far as it came: between the two renames there is no file of that name."""
    found = set()
    for files, _ in every_fault(archive_it, archive_old, PowerLoss):
        files.end_faults()
        found.add("m/c" in files.names)
        _, current = state = what_is_there(files)
        assert state in {(b"", b"old\n"), (b"old\n", b"new\n")}
        assert not any(name.endswith(".next") for name in files.names)
        Volume(files, "data").append([("m/c", b"more\n")])
        files.crash(0, False)
        assert what_is_there(files)[1] == current + b"more\n"
        assert not any(name.endswith(".next") for name in files.names)
    assert found == {True, False}


def test_a_half_archive_that_a_power_loss_cuts_off_from_its_end_is_finished_the_next_time():
    def setup(volume):
        archive_old(volume)
        volume._files.put("m/2026-02-25-143000.jsonl", b"old\n")
        volume._files.put("m/c.next", b"new\n")
        del volume._files.names["m/c"], volume._files._durable_names["m/c"]

    for files, _ in every_fault(lambda volume: volume.read("m/c"), setup, PowerLoss):
        files.crash(0, False)
        assert what_is_there(files) == (b"old\n", b"new\n")


def test_an_archive_that_fails_over_and_over_leaves_the_file_as_it_was():
    """Also for whoever only appends; and if the process ends before the disk lets it bring the name back, a reader finishes."""
    for times in (2, 3, 4, 5):
        for files, volume in every_fault(archive_it, archive_old, errno.EIO, times):
            files.end_faults()
            volume.append([("m/c", b"more\n")])
            assert volume.read("m/c") == b"old\nmore\n"
            assert what_is_there(files) == (b"", b"old\nmore\n")
        for files, _ in every_fault(archive_it, archive_old, errno.EIO, times):
            files.end_faults()
            assert what_is_there(files) in {(b"", b"old\n"), (b"old\n", b"new\n")}


def test_what_a_crash_has_left_beside_a_file_is_never_taken_for_it(volume, files):
    """It was written, and the file was not renamed yet: the next archive begins anew, and so does who deletes the file."""
    archive_old(volume)
    files.put("m/c.next", b"half of somethi")
    assert Volume(files, "data").read("m/c") == b"old\n"
    assert "m/c.next" not in files.names
    files.put("m/c.next", b"half of somethi")
    archive_it(volume)
    assert what_is_there(files) == (b"old\n", b"new\n")


def test_an_archive_that_is_to_have_another_name_than_it_would_get_is_refused(volume, files):
    archive_old(volume)
    name = volume.archive_name("m/c", AT)
    assert name == "2026-02-25-143000.jsonl"
    assert volume.archive("m/c", name.encode(), AT, name) == name
    with pytest.raises(StorageError, match=r"2026-02-25-143000-2\.jsonl"):
        volume.archive("m/c", b"x", AT, name)
    assert files.content("m/c") == name.encode()
    assert volume.archive_name("m/other", AT) == ""


# ------------------------------------------------------------------ reading and repair


def test_reading_what_is_not_there(volume):
    assert volume.read("nowhere") == b""
    assert volume.read_spans("nowhere", [Span(0, 3), Span(5, 1)]) == [b"", b""]


@pytest.mark.parametrize("faults", [0, 1])
def test_logs_that_are_opened_are_durable_even_if_whoever_wrote_them_was_killed_before_the_sync(files, faults):
    """A record that is read makes promises (a duplicate is answered at once), so it must not vanish afterwards."""
    files.append_unsynced("in/x", b"1\n")
    files.append_unsynced("out/y", b"2\n")
    files.fail(1, OSError(errno.EIO, "the sync"), faults)
    assert Volume(files, "data").read_durable(["in/x", "out/y", "nowhere"]) == [b"1\n", b"2\n", b""]
    files.crash(0, False)
    assert (files.content("in/x"), files.content("out/y")) == (b"1\n", b"2\n")


def test_after_a_failed_sync_at_the_opening_the_next_try_does_not_trust_a_sync(files):
    files.append_unsynced("x", b"1\n")
    volume = Volume(files, "data")
    files.fail(1, OSError(errno.EIO, "the sync, and then the copy"), 2)
    with pytest.raises(StorageError, match="cannot write data/x"):
        volume.read_durable(["x"])
    assert volume.read_durable(["x"]) == [b"1\n"]
    files.crash(0, False)
    assert files.content("x") == b"1\n"


def test_what_was_refused_but_could_not_be_cut_off_is_not_read(volume, files):
    volume.append([("x", b"old\n")])
    files.fail(2, OSError(errno.EIO, "the sync, and then the cutting"), 2)
    with pytest.raises(StorageError):
        volume.append([("x", b"new\n")])
    assert files.content("x") == b"old\nnew\n"
    assert volume.read("x") == volume.read_durable(["x"])[0] == b"old\n"


def test_spans_are_read(volume):
    volume.append([("x", b"0123456789")])
    assert volume.read_spans("x", [Span(2, 3), Span(8, 10), Span(20, 1)]) == [b"234", b"89", b""]


def test_a_torn_tail_is_moved_aside(volume, files):
    files.put("x", b"good\nto")
    assert volume.set_tail_aside("x", 5, b"to") == "x.bad-1"
    files.crash(0, False)
    assert files.content("x") == b"good\n"
    assert files.content("x.bad-1") == b"to"


def test_a_copy_finds_its_place_behind_what_cannot_be_read_and_is_made_once():
    files, volume = fresh(lambda volume: volume.append([("x.bad-1", b"?"), ("x.bad-2", b"other")]))
    files.unreadable.add("x.bad-1")
    assert [volume.keep_copy("x", b"damage") for _ in range(2)] == ["x.bad-3", "x.bad-3"]
    files.crash(0, False)
    assert files.content("x.bad-3") == b"damage"


def test_torn_tails_of_several_crashes_are_all_kept(volume, files):
    for n in (1, 2):
        files.put("x", b"good\nto%d" % n)
        assert volume.set_tail_aside("x", 5, b"to%d" % n) == f"x.bad-{n}"
    assert files.content("x.bad-1") == b"to1"


def test_a_power_loss_while_setting_aside_keeps_the_tail():
    def setup(volume):
        volume.append([("x", b"good\nto")])

    def work(volume):
        volume.set_tail_aside("x", 5, b"to")

    for files, _ in every_fault(work, setup, PowerLoss):
        files.crash(0, False)
        assert files.content("x") == b"good\nto" or (files.content("x"), files.content("x.bad-1")) == (
            b"good\n",
            b"to",
        )
