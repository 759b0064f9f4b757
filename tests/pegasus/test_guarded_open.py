"""Opening what others can write."""

import os

import pytest

from pegasus.guarded_open import open_folder, open_regular


@pytest.fixture
def place(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("folder/file")
    (tmp_path / "way").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def test_a_file_is_read_and_its_place_may_be_a_descriptor(place):
    with open_regular(place / "folder" / "file") as file:
        assert file.read() == b"content"
    with open_folder(place / "folder") as folder, open_regular("file", folder) as file:
        assert file.read() == b"content"


def test_a_link_is_followed_only_where_that_is_wanted(place):
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_regular(place / "link")
    with open_regular(place / "link", follows=True) as file:
        assert file.read() == b"content"
    with pytest.raises(NotADirectoryError), open_folder(place / "way"):
        pass


@pytest.mark.parametrize("name", ["folder", "pipe"])
def test_what_is_no_file_is_refused_without_waiting_and_leaves_nothing_open(place, name):
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(place / name)
    assert os.listdir("/proc/self/fd") == before
