"""read_file and get_file_info."""

import base64
import json
import os

import pytest


async def test_a_file_is_read_whole(work, workspace):
    (workspace / "a.txt").write_text("one\ntwo\n")
    assert await work("read_file", path="a.txt") == {
        "path": "a.txt",
        "content": "one\ntwo\n",
        "size": 8,
        "encoding": "utf-8",
    }


async def test_an_empty_file_is_empty(work, workspace):
    (workspace / "a.txt").touch()
    assert (await work("read_file", path="a.txt"))["content"] == ""


@pytest.mark.parametrize(
    ("offset", "limit", "content", "truncated"),
    [
        (0, 1, "0\n", True),
        (1, 2, "1\n2\n", True),
        (3, 1, "3\n", True),
        (4, None, "4", False),
        (3, 2, "3\n4", False),
        (0, 99, "0\n1\n2\n3\n4", False),
        (5, None, "", False),
        (99, 1, "", False),
    ],
)
async def test_lines_are_counted_from_zero(work, workspace, offset, limit, content, truncated):
    (workspace / "a.txt").write_text("0\n1\n2\n3\n4")
    got = await work("read_file", path="a.txt", offset=offset, limit=limit)
    assert (got["content"], got["truncated"], got["totalLines"]) == (content, truncated, 5)
    assert got["offset"] == offset
    assert got["limit"] == content.count("\n") + (not content.endswith("\n") and bool(content))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_a_long_file_is_read_in_parts_that_fit_together(work, workspace, end):
    text = "".join(f'line {n} "quoted" é\t{end}' for n in range(20_000))
    (workspace / "a.txt").write_text(text, newline="")
    work.with_room(10_000)
    content, offset, reads = "", 0, 0
    while True:
        got = await work("read_file", path="a.txt", offset=offset)
        assert got["totalLines"] == 20_000
        content += got["content"]
        offset += got["limit"]
        reads += 1
        if not got["truncated"]:
            break
        assert got["more"] == f"the next lines: offset {offset}"
    assert content == text
    assert 10 < reads < 100


async def test_without_asking_a_long_file_is_cut_at_a_line_and_says_so(work, workspace):
    (workspace / "a.txt").write_text("x" * 99 + "\n" + ("y" * 99 + "\n") * 1_000)
    got = await work.with_room(5_000)("read_file", path="a.txt")
    assert got["truncated"]
    assert got["totalLines"] == 1_001
    assert got["content"].endswith("y\n")


async def test_a_line_longer_than_a_result_is_cut_and_says_so(work, workspace):
    (workspace / "a.json").write_text("[" + "1," * 1_000_000 + "1]\nend")
    got = await work.with_room(5_000)("read_file", path="a.json")
    assert "the line is longer" in got["note"]
    assert got["truncated"]
    got = await work("read_file", path="a.json", offset=1)
    assert got["content"] == "end"


async def test_what_else_looks_like_a_line_end_is_none(work, workspace):
    text = "a\u2028b\x0bc\x85d\re\n"
    (workspace / "a.txt").write_text(text, newline="")
    got = await work("read_file", path="a.txt", offset=0, limit=5)
    assert (got["content"], got["totalLines"]) == (text, 1)


async def test_a_character_on_the_border_of_two_pieces_is_whole(work, workspace):
    text = "é" * 300_000
    (workspace / "a.txt").write_text("\n".join(text[n : n + 1000] for n in range(0, len(text), 1000)))
    work.with_room(1_000_000)
    assert "\ufffd" not in (await work("read_file", path="a.txt"))["content"]


async def test_a_huge_file_is_read_from_its_beginning_without_being_held_in_memory(work, workspace, fill):
    import tracemalloc

    fill(workspace / "big.txt", ("a line of some length, again and again\n" for _ in range(500_000)))
    tracemalloc.start()
    got = await work("read_file", path="big.txt", offset=400_000, limit=3)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert got["totalLines"] == 500_000
    assert got["content"].count("\n") == 3
    assert most < 10 << 20


@pytest.mark.parametrize(
    ("data", "encoding", "content"),
    [
        (b"\xef\xbb\xbfhi", None, "hi"),
        ("hé".encode("utf-16"), None, "hé"),
        (b"\xff\xfeh\x00i\x00", None, "hi"),
        ("hé".encode("latin-1"), "latin-1", "hé"),
        ("日本".encode("shift_jis"), "Shift_JIS", "日本"),
        ("中文".encode("gb18030"), "gb18030", "中文"),
    ],
)
async def test_encodings(work, workspace, data, encoding, content):
    (workspace / "a").write_bytes(data)
    assert (await work("read_file", path="a", encoding=encoding))["content"] == content


async def test_bytes_that_are_no_utf8_are_shown_as_such_with_a_note(work, workspace):
    (workspace / "a").write_bytes(b"caf\xe9")
    got = await work("read_file", path="a")
    assert got["content"] == "caf\ufffd"
    assert "not valid utf-8" in got["note"]


@pytest.mark.parametrize("encoding", ["klingon", "rot13", "hex", "zip", "idna\0", ""])
async def test_an_unknown_encoding_is_refused_with_what_is_allowed(work, workspace, encoding):
    (workspace / "a").write_text("x")
    if encoding == "":
        await work("read_file", path="a", encoding=encoding)
    else:
        assert "allowed: utf-8" in await work.refused("read_file", path="a", encoding=encoding)


async def test_binary_files_are_not_shown_as_text_but_their_bytes_can_be_had(work, workspace):
    (workspace / "a.png").write_bytes(b"\x89PNG\r\n\0\0")
    assert "binary (8 bytes)" in await work.refused("read_file", path="a.png")
    got = await work("read_file", path="a.png", encoding="base64")
    assert base64.b64decode(got["content"]) == b"\x89PNG\r\n\0\0"
    (workspace / "big.png").write_bytes(bytes(1_000_000))
    assert "more than a result may hold" in await work.refused("read_file", path="big.png", encoding="base64")


async def test_a_folder_is_not_read(work, workspace):
    (workspace / "sub").mkdir()
    assert "sub is a folder" in await work.refused("read_file", path="sub")
    assert "list_files" in await work.refused("read_file", path=".")


async def test_a_file_without_permission_is_an_error(work, workspace):
    (workspace / "a").write_text("x")
    (workspace / "a").chmod(0)
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    assert "permission denied" in await work.refused("read_file", path="a")


async def test_a_name_that_is_no_unicode_can_be_listed_and_read(work, workspace, fill):
    """The bytes of the name go to the model as escapes, and come back from it."""
    fill(os.path.join(os.fsencode(workspace), b"caf\xe9.txt"), ["found"])
    [entry] = (await work("list_files"))["files"]
    again = json.loads(json.dumps(entry["path"]))
    assert (await work("read_file", path=again))["content"] == "found"
    assert (await work("grep_files", pattern="found"))["matches"][0]["file"] == again


@pytest.mark.parametrize("name", ["ünïcödé.txt", "日本 語.txt", "emoji 🙂.txt", "a\nb.txt", "-rf", "$HOME", "a'b\"c"])
async def test_names_of_every_kind(work, workspace, name):
    await work("write_file", path=name, content="x")
    assert (workspace / name).read_text() == "x"
    assert [entry["name"] for entry in (await work("list_files"))["files"]] == [name]
    assert (await work("read_file", path=name))["content"] == "x"
    assert (await work("delete_file", path=name))["deleted"]


# ------------------------------------------------------------------ get_file_info


async def test_what_is_known_about_a_file(work, workspace):
    (workspace / "a").write_text("four")
    os.utime(workspace / "a", (0, 1_772_020_800.5))
    assert await work("get_file_info", path="a") == {
        "path": "a",
        "exists": True,
        "size": 4,
        "isDirectory": False,
        "isFile": True,
        "modified": "2026-02-25T12:00:00.500+00:00",
    }


async def test_what_is_known_about_a_folder_and_about_nothing(work, workspace):
    (workspace / "a").touch()
    assert (await work("get_file_info", path="."))["isDirectory"]
    for missing in ("missing", "missing/deep", "a/below-a-file"):
        got = await work("get_file_info", path=missing)
        assert (got["exists"], got["isFile"], got["isDirectory"], got["modified"]) == (False, False, False, None)
