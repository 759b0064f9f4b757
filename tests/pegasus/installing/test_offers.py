"""Skills of a folder as they are offered: what is shown, what is refused, and what an update changes."""

from __future__ import annotations

import os

import attrs
import pytest

from pegasus.installing import SourceError, describe_changes, describe_offer, find_offers, parse_source
from pegasus.installing import source_tree as source_tree_module
from pegasus.installing.source_tree import read_folder
from tests.pegasus.installing.sources import put, skill


def offers(folder):
    return find_offers(read_folder(folder))


def test_what_a_skill_asks_for_is_shown(tmp_path):
    front = "allowed-tools: Read | Bash(git:*);mcp__github\nmodel: default\nuser-invocable: false\nversion: 1\n"
    put(tmp_path, "pdf/SKILL.md", skill("pdf", "See https://api.example.org/x and curl it.", front))
    put(tmp_path, "pdf/scripts/fill.py", b"import requests\nrequests.get('http://Other.example.org.')\n").chmod(0o755)
    put(tmp_path, "pdf/run", b"#!/usr/bin/env ruby\n")
    put(tmp_path, "pdf/tool", b"\x7fELF\0\0")
    [offer] = offers(tmp_path)
    rows = [line.strip() for line in describe_offer(offer, "git+https://example.org/x", "c0ffee").splitlines()]
    assert rows[0] == "pdf"
    assert "from       git+https://example.org/x, commit c0ffee" in rows
    assert "says       Fills forms." in rows
    assert "tools      read_file, shell_exec(git *), github__*" in rows
    assert "model      default" in rows
    assert "runs       as a task (general)" in rows
    assert "called by  the model" in rows
    assert "network    curl, requests, api.example.org, other.example.org" in rows
    assert "scripts    run (/usr/bin/env ruby), scripts/fill.py (Python, executable), tool (binary program)" in rows
    assert f"files      4 files, {sum(map(len, offer.files.values()))} bytes" in rows
    assert "58  scripts/fill.py" in rows
    assert any(
        row.startswith("notice     not as the format wants it: the keys model, user-invocable, version") for row in rows
    )


def test_a_skill_below_a_skill_is_a_part_of_it_and_others_stand_beside(tmp_path):
    put(tmp_path, "a/SKILL.md", skill("a"))
    put(tmp_path, "a/examples/b/SKILL.md", skill("b"))
    put(tmp_path, "a-b/skill.md", skill("a-b"))
    put(tmp_path, "README.md", b"x")
    put(tmp_path, ".git/SKILL.md", skill("git"))
    found = offers(tmp_path)
    assert [(offer.name, sorted(offer.files)) for offer in found] == [
        ("a", ["SKILL.md", "examples/b/SKILL.md"]),
        ("a-b", ["SKILL.md"]),
    ]
    assert found[1].notices[0] == "its file is called skill.md, which other agents may not find"


@pytest.mark.parametrize(
    ("path", "content", "problem"),
    [
        ("pdf/SKILL.md", b"\xff\xfe", "not UTF-8"),
        ("pdf/SKILL.md", skill("pdf", "x" * (256 << 10)), "allowed: 262,144"),
        ("pdf/SKILL.md", b"---\nname: [\n---\nx", "no YAML"),
        ("pdf/SKILL.md", skill("Pdf_Forms"), "must be the name of its folder"),
        ("Pdf_Forms/SKILL.md", skill("PDF"), "allowed are 1 to 64"),
        ("pdf/Skill.md", b"x", "one name on some machines"),
        ("pdf/A/x", b"x", "one name on some machines"),
        ("pdf/\u0065\u0301", b"x", "one name on some machines"),
        (b"pdf/\xff", b"x", "names in UTF-8"),
        ("pdf/a\x1bb", b"x", "without control characters"),
        ("pdf/model", b"version https://git-lfs.github.com/spec/v1\n", "large-file storage"),
        ("pdf/big", bytes((16 << 20) + 1), "allowed: 16,777,216"),
        ("other/SKILL.md", skill("pdf"), "several skills of this name"),
    ],
)
def test_a_skill_that_cannot_be_installed_says_why(tmp_path, path, content, problem):
    if not str(path).startswith("Pdf"):
        put(tmp_path, "pdf/SKILL.md", skill())
        put(tmp_path, "pdf/a/x")
        put(tmp_path, "pdf/\u00e9")
    put(tmp_path, os.fsdecode(path), content)
    found = offers(tmp_path)[0]
    assert found.skill is None
    assert problem in found.problem


def test_links_are_not_followed_and_pipes_not_waited_for(tmp_path):
    put(tmp_path, "one/SKILL.md", skill("one"))
    (tmp_path / "one/secret").symlink_to("/etc/passwd")
    put(tmp_path, "two/SKILL.md", skill("two"))
    os.mkfifo(tmp_path / "two/pipe")
    put(tmp_path, "three/SKILL.md", skill("three"))
    (tmp_path / "four").symlink_to("three")
    assert [(offer.name, offer.problem) for offer in offers(tmp_path)] == [
        ("one", "'secret' is a link, allowed: files"),
        ("three", ""),
        ("two", "'pipe' is a special file, allowed: files"),
    ]


def test_a_folder_without_end_is_left_early(tmp_path, monkeypatch):
    monkeypatch.setattr(source_tree_module, "MOST_ENTRIES", 10)
    for number in range(12):
        put(tmp_path, f"pdf/{number}", b"")
    with pytest.raises(SourceError, match="found more than 10 files"):
        read_folder(tmp_path)


def test_changes_are_shown_whole(tmp_path):
    old = {"SKILL.md": b"one\ntwo\n", "gone": b"x", "picture": b"\xff\x00", "same": b"s"}
    new = {"SKILL.md": b"one\n2\n", "new.sh": b"rm\n", "picture": b"\xff\x01\x02", "same": b"s", "empty": b""}
    assert describe_changes(old, new) == "\n".join(
        [
            *("--- a/SKILL.md", "+++ b/SKILL.md", "@@ -1,3 +1,3 @@", " one", "-two", "+2", " "),
            *("--- /dev/null", "+++ b/empty"),
            *("--- a/gone", "+++ /dev/null", "@@ -1 +0,0 @@", "-x"),
            *("--- /dev/null", "+++ b/new.sh", "@@ -0,0 +1,2 @@", "+rm", "+"),
            "picture: no text, changed from 2 bytes to 3 bytes",
        ]
    )


@pytest.mark.parametrize(
    "text",
    [
        "git+https://example.org/x@--upload-pack=evil",
        "git+https://-oProxyCommand=evil/x",
        "git+https://example.org/x@a:b",
        "git+https://example.org/x@a..b",
        "git+https://example.org/x@",
        "git+ssh://git@example.org/x",
        "git+ext::sh -c evil",
        "git+http://example.org/x",
        "git+https://example.org:99999/x",
        "git+https://example.org/a b",
        "git+file://host/x",
        "git+https://example.org/x#egg=y",
        "git+https://example.org/x#subdirectory=../y",
        "git+https://user:secret-word@/x",
        "https://user:secret-word@example.org/x.zip",
        "git@example.org:x.git",
        "--upload-pack=evil",
    ],
)
def test_a_source_that_is_none_is_refused_without_its_password(text):
    with pytest.raises(SourceError) as refused:
        parse_source(text)
    assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize("text", ["https://example.org/a/b", "file:///srv/skills", "git@example.org:a/b"])
def test_an_address_alone_is_refused_with_how_a_repository_is_written(text):
    with pytest.raises(SourceError, match=r"a git repository: git\+ before its address"):
        parse_source(text)


def test_a_repository_is_read_from_its_text():
    source = parse_source("git+https://user:secret-word@example.org:8443/a/b.git@release/1.2#subdirectory=skills/pdf")
    assert source.text == "git+https://example.org:8443/a/b.git@release/1.2#subdirectory=skills/pdf"
    assert (source.url, source.revision) == ("https://example.org:8443/a/b.git", "release/1.2")
    assert (source.subdirectory, source.credentials) == ("skills/pdf", "user:secret-word")
    assert "secret-word" not in repr(source)
    assert parse_source(source.text) == attrs.evolve(source, credentials="")
    spaced = parse_source("git+https://example.org/x#subdirectory=a%20b%2520c")
    assert (spaced.subdirectory, parse_source(spaced.text)) == ("a b%20c", spaced)
