"""write_file, edit_file, delete_file, move_file: a file holds what it held or what it should."""

import base64
import errno
import os
import tracemalloc

import pytest
import trio

from pegasus.tools.files import changing
from pegasus.tools.text import ALLOWED_ENCODINGS


def leftovers(workspace):
    return [file.name for file in workspace.rglob("*") if file.name.endswith(".tmp")]


# ------------------------------------------------------------------ write_file


async def test_a_file_and_its_folders_are_made(work, workspace):
    got = await work("write_file", path="a/b/c.txt", content="hé")
    assert got == {"path": "a/b/c.txt", "bytesWritten": 3, "encoding": "utf-8"}
    assert (workspace / "a/b/c.txt").read_text() == "hé"
    assert leftovers(workspace) == []


async def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(work, workspace):
    umask = os.umask(0o022)
    try:
        await work("write_file", path="new", content="x")
        (workspace / "script").write_text("x")
        (workspace / "script").chmod(0o750)
        await work("write_file", path="script", content="y")
    finally:
        os.umask(umask)
    assert (workspace / "new").stat().st_mode & 0o777 == 0o644
    assert (workspace / "script").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    ("content", "encoding", "data"),
    [
        ("é", "latin-1", b"\xe9"),
        (base64.b64encode(bytes(range(256))).decode(), "base64", bytes(range(256))),
        ("a\r\nb\n", None, b"a\r\nb\n"),
    ],
)
async def test_content_is_written_as_it_is(work, workspace, content, encoding, data):
    await work("write_file", path="f", content=content, encoding=encoding)
    assert (workspace / "f").read_bytes() == data


async def test_what_cannot_be_encoded_leaves_the_old_file(work, workspace):
    (workspace / "f").write_text("old")
    assert "character 1 ('\\u20ac') cannot be written as latin-1" in await work.refused(
        "write_file", path="f", content="a€", encoding="latin-1"
    )
    assert "utf-8" in await work.refused("write_file", path="f", content="\ud800")
    assert "not base64" in await work.refused("write_file", path="f", content="%%%", encoding="base64")
    assert (workspace / "f").read_text() == "old"


async def test_a_folder_or_read_only_file_is_not_replaced(work, workspace):
    (workspace / "sub").mkdir()
    (workspace / "f").write_text("old")
    (workspace / "f").chmod(0o444)
    assert "sub is a folder" in await work.refused("write_file", path="sub", content="x")
    assert "read-only (mode 444)" in await work.refused("write_file", path="f", content="x")
    assert "folder" in await work.refused("write_file", path=".", content="x")
    assert "not a folder" in await work.refused("write_file", path="f/below", content="x")


async def test_a_full_disk_leaves_the_old_file_and_nothing_else(work, workspace, monkeypatch):
    (workspace / "f").write_text("old")
    written = 0

    def write(fd, data):
        nonlocal written
        written += 1
        if written > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os_write(fd, data[:1000])

    os_write = os.write
    monkeypatch.setattr(changing.os, "write", write)
    assert "the disk is full; nothing was changed" in await work.refused("write_file", path="f", content="x" * 10_000)
    monkeypatch.undo()
    assert (workspace / "f").read_text() == "old"
    assert leftovers(workspace) == []


async def test_a_short_write_is_gone_on_with(work, workspace, monkeypatch):
    os_write = os.write
    monkeypatch.setattr(changing.os, "write", lambda fd, data: os_write(fd, data[:7]))
    await work("write_file", path="f", content="0123456789" * 100)
    assert (workspace / "f").read_text() == "0123456789" * 100


async def test_a_cancelled_write_leaves_the_old_file_and_nothing_else(work, workspace, monkeypatch):
    """Cancelled in the middle, between two pieces."""
    (workspace / "f").write_text("old")
    scope = trio.CancelScope()
    pieces = 0
    write_all = changing._write_all

    def slowly(fd, data):
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            trio.from_thread.run_sync(scope.cancel)
        write_all(fd, data)

    monkeypatch.setattr(changing, "_write_all", slowly)
    with scope:
        await work("write_file", path="f", content="x" * (10 << 20))
    assert scope.cancelled_caught
    assert pieces == 3
    assert (workspace / "f").read_text() == "old"
    assert leftovers(workspace) == []


async def test_a_file_that_somebody_changes_meanwhile_is_not_written_over(work, workspace, monkeypatch):
    (workspace / "f").write_text("old")
    write_all = changing._write_all

    def interfere(fd, data):
        (workspace / "f").write_text("from the user")
        write_all(fd, data)

    monkeypatch.setattr(changing, "_write_all", interfere)
    for name, more in (("write_file", {"content": "x"}), ("edit_file", {"old_string": "old", "new_string": "x"})):
        (workspace / "f").write_text("old")
        assert "changed by another program" in await work.refused(name, path="f", **more)
        assert (workspace / "f").read_text() == "from the user"
    assert leftovers(workspace) == []


# ------------------------------------------------------------------ edit_file


@pytest.mark.parametrize("new", ["$&", "$$", "$'", "$`", r"\1", r"\g<0>", "\\n", "%s {} {0}", ""])
async def test_what_is_put_in_is_taken_literally(work, workspace, new):
    (workspace / "f").write_text("before MARK after")
    assert await work("edit_file", path="f", old_string="MARK", new_string=new) == {"path": "f", "replacements": 1}
    assert (workspace / "f").read_text() == f"before {new} after"


async def test_text_that_is_missing_or_there_more_than_once_is_refused(work, workspace):
    (workspace / "f").write_text("aaa b b")
    assert "not in f" in await work.refused("edit_file", path="f", old_string="x", new_string="y")
    assert "2 times in f" in await work.refused("edit_file", path="f", old_string="b", new_string="y")
    assert "2 times in f" in await work.refused("edit_file", path="f", old_string="aa", new_string="y")  # overlapping
    assert "old_string is empty" in await work.refused("edit_file", path="f", old_string="", new_string="y")
    assert "the same" in await work.refused("edit_file", path="f", old_string="b", new_string="b")
    assert (workspace / "f").read_text() == "aaa b b"


async def test_every_place_is_replaced_if_asked(work, workspace):
    (workspace / "f").write_text("b b b")
    assert (await work("edit_file", path="f", old_string="b", new_string="bb", replace_all=True))["replacements"] == 3
    assert (workspace / "f").read_text() == "bb bb bb"


async def test_an_edit_writes_no_half_of_a_character(work, workspace):
    (workspace / "f").write_text("old")
    for half in ("\ud800", "\udcff"):
        assert "cannot be written as utf-8" in await work.refused(
            "edit_file", path="f", old_string="old", new_string=half
        )
    assert (workspace / "f").read_text() == "old"


async def test_an_edit_keeps_bytes_it_does_not_understand(work, workspace):
    (workspace / "f").write_bytes(b"\xef\xbb\xbfcaf\xe9 old \x80\n")
    await work("edit_file", path="f", old_string="old", new_string="néw")
    assert (workspace / "f").read_bytes() == b"\xef\xbb\xbfcaf\xe9 n\xc3\xa9w \x80\n"


async def test_an_edit_keeps_the_line_ends_of_the_file(work, workspace):
    (workspace / "f").write_bytes(b"a\r\nb\r\nc\r\n")
    await work("edit_file", path="f", old_string="a\nb", new_string="x\ny\nz")
    assert (workspace / "f").read_bytes() == b"x\r\ny\r\nz\r\nc\r\n"


async def test_binary_and_huge_files_are_not_edited(work, workspace):
    (workspace / "f").write_bytes(b"a\0b")
    assert "binary" in await work.refused("edit_file", path="f", old_string="a", new_string="b")
    (workspace / "g").touch()
    os.truncate(workspace / "g", changing.MAX_EDIT + 1)
    assert "edit_file takes up to" in await work.refused("edit_file", path="g", old_string="a", new_string="b")


# ------------------------------------------------------------------ delete_file


async def test_files_and_whole_folders_are_deleted(work, workspace):
    (workspace / "a" / "b" / "c").mkdir(parents=True)
    (workspace / "a" / "b" / "f").write_text("x")
    (workspace / "a" / "f").write_text("x")
    (workspace / "a" / "f").chmod(0o400)
    assert await work("delete_file", path="a") == {"path": "a", "deleted": True}
    assert list(workspace.iterdir()) == []


async def test_what_is_not_there_was_not_deleted(work, workspace):
    """A success is reported only if something was deleted; the same call after a crash is not an error."""
    (workspace / "f").touch()
    for path in ("missing", "missing/deep", "f/below"):
        assert (await work("delete_file", path=path))["deleted"] is False


async def test_of_a_link_the_link_is_deleted(work, workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (workspace / "sub").mkdir()
    (workspace / "link").symlink_to(outside)
    (workspace / "sub" / "link").symlink_to(outside)
    (workspace / "dangling").symlink_to("nowhere")
    for path in ("link", "sub", "dangling"):
        assert (await work("delete_file", path=path))["deleted"]
    assert (outside / "precious").exists()
    assert list(workspace.iterdir()) == []


async def test_nothing_behind_a_link_is_deleted(work, workspace, tmp_path):
    (tmp_path / "precious").write_text("x")
    (workspace / "door").symlink_to(tmp_path)
    assert "outside" in await work.refused("delete_file", path="door/precious")
    assert "outside" in await work.refused("delete_file", path="../precious")
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize("path", [".", "./", "sub/..", ""])
async def test_the_workspace_itself_is_never_deleted_or_moved(work, workspace, path):
    (workspace / "sub").mkdir()
    await work.refused("delete_file", path=path)
    await work.refused("move_file", {"from": path, "to": "x"})
    assert (workspace / "sub").exists()


async def test_a_folder_around_the_workspace_is_not_deleted(workshop, workspace):
    work = workshop(workspace, ["/"])
    assert "which tools may work in" in await work.refused("delete_file", path=str(workspace.parent))
    assert workspace.exists()


async def test_a_folder_that_cannot_be_emptied_is_an_error_not_a_success(work, workspace, monkeypatch):
    (workspace / "a").mkdir()
    (workspace / "a" / "f").touch()

    def unlink(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(changing.os, "unlink", unlink)
    assert "permission denied" in await work.refused("delete_file", path="a")


async def test_a_tree_without_end_is_not_followed_without_end(work, workspace):
    folder = os.open(workspace, os.O_RDONLY)
    for _ in range(changing.MAX_DEPTH + 50):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    assert "nested deeper" in await work.refused("delete_file", path="d")
    assert (await work("grep_files", pattern="x"))["totalMatches"] == 0


# ------------------------------------------------------------------ move_file


async def test_a_file_is_moved_with_its_bytes_and_mode(work, workspace):
    """A copy that goes through text would change the bytes."""
    (workspace / "a.bin").write_bytes(bytes(range(256)))
    (workspace / "a.bin").chmod(0o741)
    assert await work("move_file", {"from": "a.bin", "to": "new/b.bin"}) == {
        "from": "a.bin",
        "to": "new/b.bin",
        "moved": True,
    }
    assert (workspace / "new/b.bin").read_bytes() == bytes(range(256))
    assert (workspace / "new/b.bin").stat().st_mode & 0o777 == 0o741
    assert not (workspace / "a.bin").exists()


async def test_a_folder_is_moved_whole(work, workspace):
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "a" / "b" / "f").write_text("x")
    await work("move_file", {"from": "a", "to": "c"})
    assert (workspace / "c" / "b" / "f").read_text() == "x"


async def test_a_file_of_that_name_is_replaced_and_that_is_told(work, workspace):
    (workspace / "a").write_text("new")
    (workspace / "b").write_text("old")
    assert (await work("move_file", {"from": "a", "to": "b"}))["replaced"] is True
    assert (workspace / "b").read_text() == "new"


async def test_moves_that_cannot_be_are_refused(work, workspace):
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "f").write_text("x")
    assert "no such file" in await work.refused("move_file", {"from": "missing", "to": "x"})
    assert "a/f" in await work.refused("move_file", {"from": "f", "to": "a"})
    assert "into itself" in await work.refused("move_file", {"from": "a", "to": "a/b/c"})
    assert (workspace / "f").read_text() == "x"


async def test_a_link_is_moved_as_a_link(work, workspace, tmp_path):
    (tmp_path / "precious").write_text("x")
    (workspace / "link").symlink_to(tmp_path / "precious")
    await work("move_file", {"from": "link", "to": "other"})
    assert (workspace / "other").is_symlink()
    assert (tmp_path / "precious").exists()


async def test_to_another_disk_a_file_is_carried_whole(work, workspace, monkeypatch):
    (workspace / "a.bin").write_bytes(bytes(range(256)) * 10_000)
    (workspace / "a.bin").chmod(0o640)
    (workspace / "folder").mkdir()
    rename = os.rename

    def other_disk(old, new, **fds):
        if not old.endswith(".tmp"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(old, new, **fds)

    monkeypatch.setattr(changing.os, "rename", other_disk)
    assert (await work("move_file", {"from": "a.bin", "to": "b.bin"}))["moved"]
    assert "only files can be moved" in await work.refused("move_file", {"from": "folder", "to": "there"})
    assert (workspace / "b.bin").read_bytes() == bytes(range(256)) * 10_000
    assert (workspace / "b.bin").stat().st_mode & 0o777 == 0o640
    assert not (workspace / "a.bin").exists()
    assert leftovers(workspace) == []


# ------------------------------------------------------------------ work without end


@pytest.mark.parametrize("encoding", ["punycode", "idna", "unicode_escape", "utf-7", "rot13", "zip", "no-such"])
@pytest.mark.parametrize("tool", ["read_file", "write_file"])
async def test_codecs_that_are_not_encodings_of_files_are_refused(work, workspace, tool, encoding):
    """`punycode` takes quadratic time in one piece, which no deadline and no stop can interrupt."""
    (workspace / "f").write_text("old")
    content = {"content": "new"} if tool == "write_file" else {}
    assert "is not known; allowed: utf-8" in await work.refused(tool, path="f", encoding=encoding, **content)
    assert (workspace / "f").read_text() == "old"


@pytest.mark.parametrize("encoding", ["UTF8", "latin1", "windows-1252", "sjis", "iso-8859-15", "utf-16", "utf-8-sig"])
async def test_encodings_have_their_usual_aliases(work, encoding):
    await work("write_file", path="f", content="abc", encoding=encoding)
    assert (await work("read_file", path="f", encoding=encoding))["content"] == "abc"


@pytest.mark.parametrize("encoding", sorted(ALLOWED_ENCODINGS))
async def test_every_allowed_encoding_writes_in_pieces_what_it_writes_at_once(work, workspace, monkeypatch, encoding):
    monkeypatch.setattr(changing, "CHUNK", 7)
    for content in ("", "The quick brown fox\njumps over the lazy dog." * 3):
        await work("write_file", path="f", content=content, encoding=encoding)
        assert (workspace / "f").read_bytes() == content.encode(encoding)


def test_a_cancel_takes_effect_between_the_pieces(monkeypatch):
    """A slow encoding of a long text must not outlive the deadline of its call."""

    class Cancelled(Exception):
        pass

    def check():
        raise Cancelled

    monkeypatch.setattr(changing, "check_cancelled", check)
    with pytest.raises(Cancelled):
        changing._encode("The quick brown fox", "utf-7")


async def test_a_character_that_cannot_be_written_is_named_with_its_place_in_the_whole(work, monkeypatch):
    monkeypatch.setattr(changing, "CHUNK", 4)
    refusal = await work.refused("write_file", path="f", content="0123456789é", encoding="ascii")
    assert "character 10 ('\\xe9') cannot be written as ascii" in refusal


async def test_an_edit_that_would_make_a_huge_file_is_refused_before_it_is_made(work, workspace):
    """16 MB of one letter, each replaced by 250 letters, are 4 GB."""
    (workspace / "f").write_bytes(b"a" * changing.MAX_EDIT)
    tracemalloc.start()
    try:
        refusal = await work.refused("edit_file", path="f", old_string="a", new_string="b" * 250, replace_all=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "f would grow to 4,194,304,000 bytes; edit_file makes files of up to 16,777,216" in refusal
    assert peak < 8 * changing.MAX_EDIT
    assert (workspace / "f").read_bytes() == b"a" * changing.MAX_EDIT


async def test_an_edit_may_make_a_file_of_exactly_the_limit(work, workspace, monkeypatch):
    monkeypatch.setattr(changing, "MAX_EDIT", 6)
    (workspace / "f").write_text("aa")
    await work("edit_file", path="f", old_string="a", new_string="üb", replace_all=True)
    assert (workspace / "f").read_text() == "übüb"
    assert "would grow to 12 bytes" in await work.refused(
        "edit_file", path="f", old_string="b", new_string="bbbb", replace_all=True
    )
