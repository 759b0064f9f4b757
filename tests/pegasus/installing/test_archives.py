"""Archives of skills: what comes out of one, and everything that nobody makes by accident."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import tracemalloc
import zipfile

import pytest

from pegasus.installing import SourceError, find_offers
from pegasus.installing import archives as archives_module
from pegasus.installing import source_tree as source_tree_module
from pegasus.installing.archives import read_archive
from tests.pegasus.installing.sources import SKILL, skill


def zipped(path, *members, mode=0o644, compress=zipfile.ZIP_STORED):
    """An archive of these members: name and content, and the mode of all."""
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = (mode if stat.S_IFMT(mode) else stat.S_IFREG | mode) << 16
            archive.writestr(info, content, compress)
    return path


def tarred(path, *members, mode="w:gz", type=tarfile.REGTYPE, link=""):
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), type, link
            archive.addfile(info, io.BytesIO(content))
    return path


def with_skill(make, path, *members, **attributes):
    """An archive of a skill and further members, which alone have the attributes."""
    make(path, *members, **attributes)
    if make is zipped:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("pdf/SKILL.md", SKILL)
        return path
    with tarfile.open(path) as first:
        found = [(member, first.extractfile(member) if member.isreg() else None) for member in first]
        with tarfile.open(path.with_suffix(".2"), "w:gz") as archive:
            for member, content in found:
                archive.addfile(member, content)
            info = tarfile.TarInfo("pdf/SKILL.md")
            info.size = len(SKILL)
            archive.addfile(info, io.BytesIO(SKILL))
    return path.with_suffix(".2")


@pytest.mark.tried("skills", "archives: .zip, .skill, .tar.gz, .tar", "installed")
@pytest.mark.parametrize("name", ["x.zip", "pdf.skill", "x.tar.gz", "x.tgz", "x.tar", "no-ending"])
def test_an_archive_is_read_whatever_its_name_is(tmp_path, name):
    members = [("pdf/SKILL.md", SKILL), ("pdf/a/b.txt", b"x"), ("__MACOSX/pdf/._a", b"x"), ("pdf/.DS_Store", b"x")]
    is_zip = name.endswith((".zip", ".skill", "ending"))
    path = (
        zipped(tmp_path / name, *members)
        if is_zip
        else tarred(tmp_path / name, *members, mode="w:gz" if "z" in name else "w")
    )
    [offer] = find_offers(read_archive(path))
    assert (offer.name, offer.problem, dict(offer.files)) == ("pdf", "", {"SKILL.md": SKILL, "a/b.txt": b"x"})


def test_a_skill_at_the_top_and_one_of_several(tmp_path):
    [offer] = find_offers(read_archive(zipped(tmp_path / "pdf.skill", ("SKILL.md", SKILL), ("a", b"1"))))
    assert (offer.name, sorted(offer.files)) == ("pdf", ["SKILL.md", "a"])
    path = zipped(tmp_path / "x.zip", ("r/one/SKILL.md", skill("one")), ("r/two/SKILL.md", skill("two")))
    assert [offer.name for offer in find_offers(read_archive(path))] == ["one", "two"]
    assert [offer.name for offer in find_offers(read_archive(path, "r/two"))] == ["two"]
    with pytest.raises(SourceError, match=r"found no SKILL\.md in r/three"):
        read_archive(path, "r/three")


@pytest.mark.parametrize("make", [zipped, tarred])
@pytest.mark.parametrize(
    "name",
    ["../evil", "pdf/../../evil", "/etc/evil", "C:/evil", "pdf/a\nb", "pdf/\u202eb", "pdf//x", "/".join("a" * 40)],
)
def test_a_path_that_leads_elsewhere_refuses_the_archive(tmp_path, make, name):
    with pytest.raises(SourceError, match="allowed: paths below the source"):
        read_archive(with_skill(make, tmp_path / "x", (name, b"x")))
    assert [path.name for path in tmp_path.parent.iterdir()].count("evil") == 0


@pytest.mark.parametrize(
    ("make", "attributes", "kind"),
    [
        (zipped, {"mode": stat.S_IFLNK | 0o777}, "link"),
        (zipped, {"mode": stat.S_IFCHR | 0o666}, "special file"),
        (zipped, {"mode": stat.S_IFIFO | 0o666}, "special file"),
        (tarred, {"type": tarfile.SYMTYPE, "link": "/etc/passwd"}, "link"),
        (tarred, {"type": tarfile.LNKTYPE, "link": "pdf/SKILL.md"}, "link"),
        (tarred, {"type": tarfile.CHRTYPE}, "special file"),
        (tarred, {"type": tarfile.FIFOTYPE}, "special file"),
    ],
)
def test_a_link_or_a_special_file_in_a_skill_is_no_file(tmp_path, make, attributes, kind):
    content = b"/etc/passwd" if make is zipped else b""
    [offer] = find_offers(read_archive(with_skill(make, tmp_path / "x", ("pdf/odd", content), **attributes)))
    assert offer.problem == f"'pdf/odd' is a {kind}, allowed: files".replace("pdf/", "")


@pytest.mark.parametrize("make", [zipped, tarred])
def test_more_than_the_bound_comes_out_of_no_archive(tmp_path, make, monkeypatch):
    monkeypatch.setattr(archives_module, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(archives_module, "_UNPACKED", 1 << 20)
    compress = {"compress": zipfile.ZIP_DEFLATED} if make is zipped else {}
    path = make(tmp_path / "x", ("pdf/SKILL.md", SKILL), ("pdf/zeros", bytes(8 << 20)), **compress)
    assert path.stat().st_size < 20_000
    with pytest.raises(SourceError, match=r"found more than .* in its skills"):
        read_archive(path)


@pytest.mark.parametrize("compress", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_whose_output_has_no_bound_is_refused_before_it_is_unpacked(tmp_path, compress):
    path = zipped(tmp_path / "x", ("pdf/SKILL.md", SKILL), ("pdf/zeros", bytes(8 << 20)), compress=compress)
    tracemalloc.start()
    with pytest.raises(SourceError, match="is compressed by"):
        read_archive(path)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("make", [zipped, tarred])
def test_too_many_files_are_refused_before_they_are_read(tmp_path, make, monkeypatch):
    monkeypatch.setattr(source_tree_module, "MOST_ENTRIES", 100)
    path = make(tmp_path / "x", *((f"other/{n}", b"") for n in range(101)))
    with pytest.raises(SourceError, match="more than 100 files"):
        read_archive(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_and_one_that_is_no_utf_8(tmp_path):
    with pytest.raises(SourceError, match="found 'pdf/a' twice"):
        read_archive(with_skill(zipped, tmp_path / "a", ("pdf/a", b"1"), ("pdf/a", b"2")))
    path = with_skill(zipped, tmp_path / "b", ("pdf/aXb", b"1"))
    path.write_bytes(path.read_bytes().replace(b"aXb", b"a\xffb"))
    with pytest.raises(SourceError, match="names in UTF-8"):
        read_archive(path)
    path = with_skill(tarred, tmp_path / "c", ("pdf/a\udcffb", b"1"))
    with pytest.raises(SourceError, match="allowed: "):
        read_archive(path)
    # Many programs write UTF-8 and do not say so.
    path = with_skill(zipped, tmp_path / "d", ("pdf/aXXb", b"1"))
    path.write_bytes(path.read_bytes().replace(b"aXXb", "aéb".encode()))
    assert "aéb" in find_offers(read_archive(path))[0].files


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "encrypted", "pax"])
def test_a_damaged_archive_is_an_error_in_words(tmp_path, damage):
    path = tarred(tmp_path / "x", ("pdf/SKILL.md", SKILL), ("pdf/b", bytes(range(256)) * 40))
    match damage:
        case "cut":
            path.write_bytes(path.read_bytes()[:-60])
        case "noise":
            path.write_bytes(b"\x1f\x8b" + bytes(range(255)) * 9)
        case "empty":
            path.write_bytes(b"")
        case "encrypted":
            zipped(path, ("pdf/SKILL.md", SKILL))
            data = bytearray(path.read_bytes())
            data[data.index(b"PK\x01\x02") + 8] |= 1
            path.write_bytes(bytes(data))
        case "pax":  # a head that says it is larger than any memory
            info = tarfile.TarInfo("x")
            info.type, info.size = tarfile.XHDTYPE, 1 << 40
            path.write_bytes(info.tobuf() + struct.pack("512x"))
    with pytest.raises(SourceError):
        read_archive(path)
