"""The files beside a SKILL.md."""

import os

import pytest

from pegasus.skills import Skill
from pegasus.skills.catalog import MAX_BYTES, MAX_FILES, read_supporting_file, supporting_files


@pytest.fixture
def skill(tmp_path):
    folder = tmp_path / "skills" / "thing"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text("Body")
    (folder / "references" / "a.md").write_text("About a: ü")
    return Skill("thing", "d", "Body", folder)


def test_they_are_named_in_order_without_hidden_ones_and_links(skill):
    (skill.folder / "z.txt").write_text("z")
    (skill.folder / ".secret").write_text("no")
    (skill.folder / "link").symlink_to("/etc/passwd")
    assert supporting_files(skill) == ("references/a.md", "z.txt")


def test_only_so_many_are_named_and_not_from_any_depth(skill):
    deep = skill.folder.joinpath("a/b/c/d")
    deep.mkdir(parents=True)
    (deep / "deep.md").write_text("x")
    for n in range(MAX_FILES):
        (skill.folder / f"n{n:03}").write_text("x")
    found = supporting_files(skill)
    assert len(found) == MAX_FILES
    assert "a/b/c/d/deep.md" not in found


def test_one_is_read_as_text(skill):
    assert read_supporting_file(skill, "references/a.md") == "About a: ü"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../../secret", "is not in the folder of the skill"),
        ("/etc/passwd", "is not in the folder of the skill"),
        ("out", "is not in the folder of the skill"),
        ("references", "is not a regular file; there are: binary, large, references/a.md"),
        ("none.md", "No such file"),
        (".env", "is hidden; there are: binary, large, references/a.md"),
        ("references/../.git/config", "is hidden"),
        ("to-hidden", "is hidden"),
        ("binary", "is not UTF-8 text"),
        ("large", "is larger than 256 kB"),
        ("pipe", "is not a regular file"),
        ("a\0b", "null"),
    ],
)
def test_what_cannot_be_read_says_why(skill, tmp_path, path, problem):
    (tmp_path / "secret").write_text("no")
    (skill.folder / "out").symlink_to(tmp_path / "secret")
    (skill.folder / "binary").write_bytes(b"\xff")
    (skill.folder / "large").write_text("x" * (MAX_BYTES + 1))
    (skill.folder / ".env").write_text("KEY=secret")
    (skill.folder / ".git").mkdir()
    (skill.folder / ".git" / "config").write_text("url = https://me:secret@host")
    (skill.folder / "to-hidden").symlink_to(".env")
    os.mkfifo(skill.folder / "pipe")
    with pytest.raises(ValueError, match=problem):
        read_supporting_file(skill, path)
