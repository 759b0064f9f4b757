"""The program itself rewrites MEMORY.md: it counts at once, and nobody else's text is overwritten."""

import os

import pytest

from pegasus.identity import NOTES_FILE, OWNER_FILES, WorkspaceFiles


@pytest.fixture
def path(tmp_path):
    (tmp_path / "memory").mkdir()
    path = tmp_path / NOTES_FILE
    path.write_text("- Likes tea\n")
    return path


@pytest.fixture
def files(tmp_path, path):
    files = WorkspaceFiles(tmp_path, tmp_path / "record.json", in_thread=False, names=(*OWNER_FILES, NOTES_FILE))
    files.load()
    return files


def writer(path):
    async def write(content):
        path.write_bytes(content)

    return write


async def test_it_counts_at_once_also_while_a_program_runs(files, path):
    async with files.running_program():
        assert await files.rewrite(NOTES_FILE, lambda text: f"{text}\n- Has a dog", writer(path))
    assert files.text(NOTES_FILE) == path.read_text().strip() == "- Likes tea\n- Has a dog"
    assert not files.doubted


async def test_what_a_program_has_written_is_not_overwritten_before_an_owner_has_decided(files, path):
    async with files.running_program():
        path.write_text("evil")
    assert not await files.rewrite(NOTES_FILE, lambda text: f"{text}\n- Has a dog", writer(path))
    assert path.read_text() == "evil"
    assert files.text(NOTES_FILE) == "- Likes tea"


async def test_a_rewrite_that_a_crash_has_cut_off_from_the_record_counts_when_it_is_repeated(files, path, tmp_path):
    async with files.running_program():
        path.write_text("- Has a dog\n")
    assert await files.rewrite(NOTES_FILE, lambda text: "- Has a dog", writer(path))
    assert files.text(NOTES_FILE) == "- Has a dog"
    assert not files.doubted


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\x07b", b"x" * 30_000])
async def test_what_cannot_be_shown_as_a_whole_is_not_overwritten(files, path, content):
    path.write_bytes(content)
    assert not await files.rewrite(NOTES_FILE, lambda text: "new", writer(path))
    assert path.read_bytes() == content


async def test_a_file_with_a_second_name_is_not_overwritten(files, path, tmp_path):
    os.link(path, tmp_path / "other")
    assert not await files.rewrite(NOTES_FILE, lambda text: "new", writer(path))


async def test_a_failure_of_the_write_leaves_the_text_in_force(files, path):
    async def write(content):
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        await files.rewrite(NOTES_FILE, lambda text: "new", write)
    assert files.text(NOTES_FILE) == "- Likes tea"


async def test_a_folder_that_is_a_link_has_no_notes(files, path, tmp_path):
    path.parent.rename(tmp_path / "elsewhere")
    path.parent.symlink_to(tmp_path / "elsewhere")
    await files.refresh()
    assert files.text(NOTES_FILE) == ""
