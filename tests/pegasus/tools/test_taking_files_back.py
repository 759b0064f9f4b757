"""Changes of files that are kept and taken back: what crashes, full disks and hostile hands leave of it."""

from __future__ import annotations

import errno

import attrs
import pytest

from pegasus.access import Principal, Role
from pegasus.tools import KeptChanges, ToolContext, ToolError, UndoRefused, diff_block, take_back
from pegasus.tools.files import changing, save_incoming
from pegasus.tools.kept_changes import MOST
from pegasus.tools.path_snapshots import PathSnapshot


@pytest.fixture(autouse=True)
def outside_of_a_call(monkeypatch):
    for module in ("changing", "incoming"):
        monkeypatch.setattr(f"pegasus.tools.files.{module}.check_cancelled", lambda: None)


@pytest.fixture
def desk(tmp_path):
    folder = tmp_path / "desk"
    folder.mkdir()
    return folder


@pytest.fixture
def kept(tmp_path):
    return KeptChanges(tmp_path / "undo", lambda: 1)


@pytest.fixture
def context(desk, kept):
    return ToolContext(
        task_id="t", principal=Principal(Role.OWNER), workspace=desk, allowed_paths=(desk,), changes=kept
    )


def undo(kept, key="k"):
    [last, *_] = [change for change in kept.changes("") if not change.undone]
    return take_back(kept, last, key)


def test_a_change_that_a_crash_has_prevented_is_passed_over(context, kept, desk, monkeypatch):
    (desk / "a").write_text("old")
    with monkeypatch.context() as crash:
        crash.setattr("pegasus.tools.files.changing.replace_file", lambda *_: None)
        changing.write(context, "a", "new")
    assert undo(kept) is False
    assert (desk / "a").read_text() == "old"


def test_a_change_that_failed_is_forgotten(context, kept, desk):
    (desk / "a").write_text("old")
    (desk / "a").chmod(0o444)
    with pytest.raises(Exception, match="read-only"):
        changing.write(context, "a", "new")
    assert kept.changes("") == []


@pytest.mark.parametrize("is_done", [False, True])
def test_the_same_command_finishes_after_a_crash_what_it_has_begun_and_does_no_more(context, kept, desk, is_done):
    changing.write(context, "a", "one")
    changing.write(context, "a", "two")
    [last, first] = kept.changes("")
    with kept.taking_back(last, "k"):
        pass  # killed here
    if is_done:
        (desk / "a").write_text("one")
    [last, first] = kept.changes("")
    assert last.undone == "k"
    assert take_back(kept, last, "k") is True
    assert (desk / "a").read_text() == "one"
    assert not first.undone


def test_a_file_that_a_move_has_replaced_comes_back_after_a_crash_between_the_two(context, kept, desk):
    (desk / "a").write_text("moved")
    (desk / "b").write_text("replaced")
    changing.move(context, "a", "b")
    [change] = kept.changes("")
    with kept.taking_back(change, "k"):
        (desk / "b").rename(desk / "a")  # killed here
    [change] = kept.changes("")
    assert take_back(kept, change, "k") is True
    assert [(desk / name).read_text() for name in "ab"] == ["moved", "replaced"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_that_came_in_is_taken_back(context, kept, desk, replace):
    (desk / "in").mkdir()
    (desk / "in/a").write_text("mine")
    save_incoming(context, "in/", "a", b"theirs", replace=replace)
    assert len(kept.changes("")) == 1
    assert undo(kept)
    assert [(each.name, each.read_text()) for each in (desk / "in").iterdir()] == [("a", "mine")]
    save_incoming(context, "new/folder/", "b", b"x" * (9 << 20))
    assert undo(kept)
    assert not (desk / "new").exists()


def test_a_move_stays_where_its_former_place_is_taken(context, kept, desk):
    (desk / "a").write_text("moved")
    changing.move(context, "a", "b")
    (desk / "a").write_text("another")
    with pytest.raises(UndoRefused, match="something else at"):
        undo(kept)
    assert [(desk / name).read_text() for name in "ab"] == ["another", "moved"]


def test_a_moved_folder_goes_back_with_what_was_put_into_it(context, kept, desk):
    (desk / "f").mkdir()
    changing.move(context, "f", "deep/g")
    (desk / "deep/g/new").write_text("x")
    assert undo(kept)
    assert (desk / "f/new").read_text() == "x"
    assert not (desk / "deep").exists()


def test_no_link_is_followed_that_was_put_in_the_way(context, kept, desk, tmp_path):
    changing.write(context, "folder/a", "one")
    changing.delete(context, "folder/a")
    (desk / "folder").rmdir()
    (tmp_path / "outside").mkdir()
    (desk / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(Exception, match="a part of the path"):
        undo(kept)
    assert not list((tmp_path / "outside").iterdir())


def test_a_disk_that_is_full_keeps_nothing_and_stops_no_change(context, kept, desk, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(KeptChanges, "begin", refuse)
    changing.write(context, "a", "new")
    assert (desk / "a").read_text() == "new"


def test_what_a_full_disk_has_prevented_can_be_taken_back_later(context, kept, desk, monkeypatch):
    (desk / "a").write_text("old")
    changing.delete(context, "a")
    with monkeypatch.context() as full:
        full.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(Exception, match="full"):
            undo(kept)
    assert list(desk.iterdir()) == []
    assert undo(kept)
    assert (desk / "a").read_text() == "old"


def test_a_damaged_record_takes_nothing_back(context, kept, desk, tmp_path):
    (desk / "a").write_text("old")
    changing.write(context, "a", "new")
    [record] = (tmp_path / "undo").glob("*.change")
    record.write_bytes(record.read_bytes()[:-1] + b"X")
    with pytest.raises(UndoRefused, match="damaged"):
        undo(kept)
    record.write_bytes(b"{")
    assert kept.changes("") == []


def test_a_change_that_fails_when_its_record_has_gone_for_newer_ones_says_why(context, kept, desk, monkeypatch):
    (desk / "a.txt").write_text("old\n")
    monkeypatch.setitem(MOST, "o", (1, 1 << 20))
    replace_file = changing.replace_file

    def fail(*_: object) -> None:
        monkeypatch.setattr(changing, "replace_file", replace_file)
        changing.write(context, "b.txt", "of another task meanwhile\n")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(changing, "replace_file", fail)
    with pytest.raises(ToolError, match="the disk is full"):
        changing.write(context, "a.txt", "new\n")
    assert [change.path for change in kept.changes("")] == [str(desk / "b.txt")]


def test_records_are_bounded_in_number_and_bytes_and_guests_do_not_push_out_owners(context, kept, desk, monkeypatch):
    monkeypatch.setitem(MOST, "o", (3, 10_000))
    monkeypatch.setitem(MOST, "g", (2, 10_000))
    for n in range(5):
        changing.write(context, "a", str(n))
    for _ in range(5):
        kept.begin(attrs.evolve(kept.changes("")[0], guest="eve"), PathSnapshot())
    changing.write(context, "a", "last")
    assert len(kept.changes("")) == 3  # those of guests, which are newer, take nobody's place
    assert len(kept.changes("eve")) == 2
    (desk / "big").write_bytes(b"x" * 9_500)
    changing.write(context, "big", "small")
    assert [change.steps for change in kept.changes("")] == [("big",)]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (None, b"a\n", "```diff\n@@ -1 +1 @@\n+a\n```"),
        (b"a\nb\nc\nd\ne\n", b"a\nb\nc\nd\nE\n", "```diff\n@@ -3 +3 @@\n c\n d\n-e\n+E\n```"),
        (b"\0", b"x", "(no text to compare: 1 byte before, 1 byte now)"),
        (b"```", None, "````diff\n@@ -1 +1 @@\n-```\n````"),
        (b"\x1b]0;x\x07", b"", "```diff\n@@ -1 +1 @@\n-\\x1b]0;x\\x07\n```"),
    ],
)
def test_a_difference_is_shown_with_little_around_it(before, after, shown):
    assert diff_block(before, after) == shown


def test_a_long_difference_is_cut():
    text = diff_block(b"", b"x" * 5_000 + b"\n" + b"y\n" * 1_000)
    assert len(text.splitlines()) < 70
    assert max(map(len, text.splitlines())) < 210
    assert "more lines" in text
