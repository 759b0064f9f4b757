"""Backups that are damaged or made by somebody with bad intentions: refused as a whole, with nothing written."""

from __future__ import annotations

import os
import tarfile

import pytest

from pegasus.backup import BackupError
from pegasus.host import FORMAT
from tests.pegasus.backup.conftest import back_up, furnished, restore, tree, write


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """What backups of one home hold, by their passphrase."""
    folder = tmp_path_factory.mktemp("good")
    home = furnished(folder / "home")
    write(home, "workspace/large", os.urandom(300_000))
    for passphrase in (None, "p"):
        back_up(home, folder / f"{passphrase}", passphrase)
    return {passphrase: (folder / f"{passphrase}").read_bytes() for passphrase in (None, "p")}


def refused(source, tmp_path, match=None, passphrase=None):
    """Assert that the backup restores nothing, and that what stands around the home is untouched."""
    before = tree(tmp_path)
    with pytest.raises(BackupError, match=match):
        restore(source, tmp_path / "copy", passphrase)
    assert not (tmp_path / "copy").exists()
    assert tree(tmp_path) == before


@pytest.mark.parametrize("passphrase", [None, "p"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_one_that_was_cut_off(good, tmp_path, share, passphrase):
    content = good[passphrase]
    (tmp_path / "b").write_bytes(content[: int(len(content) * share)])
    refused(tmp_path / "b", tmp_path, passphrase=passphrase)


@pytest.mark.parametrize("passphrase", [None, "p"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9, 0.9999])
def test_one_with_a_changed_byte(good, tmp_path, share, passphrase):
    content = bytearray(good[passphrase])
    content[int(len(content) * share)] ^= 0x41
    (tmp_path / "b").write_bytes(content)
    refused(tmp_path / "b", tmp_path, passphrase=passphrase)


def test_one_whose_pieces_were_cut_off_or_exchanged(good, tmp_path):
    content = good["p"]
    head, piece = 33, (1 << 16) + 16
    pieces = [content[at : at + piece] for at in range(head, len(content), piece)]
    for other in (pieces[:-1], [*pieces[:1], *pieces[2:]], [pieces[0], pieces[2], pieces[1], *pieces[3:]]):
        (tmp_path / "b").write_bytes(content[:head] + b"".join(other))
        refused(tmp_path / "b", tmp_path, passphrase="p")


@pytest.mark.parametrize("content", [b"", b"x", b"\x28\xb5\x2f\xfd", b"PK\3\4" * 100, b"pegasus sealed 1\n"])
def test_a_file_that_is_none(tmp_path, content):
    (tmp_path / "b").write_bytes(content)
    refused(tmp_path / "b", tmp_path, passphrase="p")


@pytest.mark.parametrize("change", [{"backup": 2}, {"format": FORMAT + 1}, {"format": -1}])
def test_one_of_another_version(forgery, tmp_path, change):
    forgery.manifest |= change
    refused(forgery.file("data/x").write(), tmp_path, "newer version")


@pytest.mark.parametrize("change", [{"format": "2"}, {"files": 3}, {"files": [{"path": 7}]}, {"version": None}])
def test_one_whose_manifest_is_nonsense(forgery, tmp_path, change):
    forgery.manifest |= change
    refused(forgery.write(), tmp_path, "manifest")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/x",
        "../x",
        "data/../../x",
        "data//x",
        "data/./x",
        "",
        ".",
        "..",
        "data/x\0y",
        "lock",
        "run/daemon.json",
        "backups/x",
    ],
)
def test_one_with_a_path_that_leads_out(forgery, tmp_path, path):
    forgery.file("data/first").member("y", b"x")
    forgery.files.append(dict(forgery.files[0], path=path))
    refused(forgery.write(), tmp_path, "found")


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("workspace/l", "/etc/passwd"),
        ("workspace/l", "../token"),
        ("workspace/l", "../../x"),
        ("workspace/a/l", "../../x"),
        ("workspace/l", "a/../../x"),
        ("workspace/l", ""),
        ("l", "data"),
        ("../l", "x"),
    ],
)
def test_one_with_a_link_that_leads_out(forgery, tmp_path, path, target):
    forgery.manifest["links"] = [{"path": path, "target": target}]
    refused(forgery.file("data/x").write(), tmp_path, "found")


def test_one_that_writes_through_a_link(forgery, tmp_path):
    forgery.manifest["links"] = [{"path": "workspace/l", "target": "a"}]
    refused(forgery.file("workspace/l/x").write(), tmp_path, "below a file or a link")


def test_one_with_a_folder_in_place_of_a_file(forgery, tmp_path):
    refused(forgery.file("data/x").file("data/x/y").write(), tmp_path, "below a file")


def test_one_with_a_file_twice(forgery, tmp_path):
    refused(forgery.file("data/x").file("data/x").write(), tmp_path, "twice")


@pytest.mark.parametrize(
    "attributes",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3},
        {"type": tarfile.FIFOTYPE},
        {"type": tarfile.DIRTYPE},
    ],
)
def test_one_with_something_else_than_a_file(forgery, tmp_path, attributes):
    forgery.file("data/x", b"")
    forgery.members.clear()
    refused(forgery.member("data/x", b"", **attributes).write(), tmp_path, "announced")


def test_one_with_more_or_less_than_it_announces(forgery, tmp_path):
    refused(forgery.file("data/x").member("data/y", b"x").write(), tmp_path, "not announce")
    forgery.members.clear()
    refused(forgery.write(), tmp_path, "cut off")
    refused(forgery.member("data/z", b"x").write(), tmp_path, "announced")


def test_one_with_another_content_than_it_announces(forgery, tmp_path):
    forgery.file("data/x", b"abc")
    forgery.members.clear()
    refused(forgery.member("data/x", b"abd").write(), tmp_path, "damaged")


def test_one_that_is_larger_than_the_disk(forgery, tmp_path):
    from pegasus.host import HomeError

    forgery.file("data/x", b"abc", size=1 << 60)
    with pytest.raises(HomeError, match="MB are free"):
        restore(forgery.write(), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
