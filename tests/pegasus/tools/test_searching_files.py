"""list_files and grep_files."""

import os
import re
import time

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegasus.tools import ToolError
from pegasus.tools.files.searching import CHUNK, compile_glob, compile_pattern


@pytest.fixture
def tree(workspace):
    for name, text in {
        "a.py": "import os\nprint('needle')\n",
        "b.txt": "needle needle\nno\n",
        "src/c.py": "x = 'needle'",
        "src/deep/d.ts": "NEEDLE",
        ".git/config": "needle",
        "node_modules/x.js": "needle",
    }.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    return workspace


def names(listing):
    return [entry["path"] for entry in listing["files"]]


# ------------------------------------------------------------------ list_files


async def test_folders_are_listed_too_with_what_they_are(work, tree):
    """A listing that is not recursive shows folders too."""
    got = await work("list_files")
    assert (got["path"], got["recursive"], got["count"]) == (".", False, 5)
    assert names(got) == [".git", "a.py", "b.txt", "node_modules", "src"]
    assert got["files"][1] == {"name": "a.py", "path": "a.py", "isDir": False, "size": 26}
    assert got["files"][4]["isDir"] is True


async def test_a_recursive_listing_gives_paths_that_any_tool_takes(work, tree):
    got = await work("list_files", path="src", recursive=True)
    assert names(got) == ["src/c.py", "src/deep", "src/deep/d.ts"]
    for path in names(await work("list_files", path=str(tree / "src"), recursive=True)):
        assert (await work("get_file_info", path=path))["exists"]


async def test_names_are_chosen_by_a_regular_expression(work, tree):
    assert names(await work("list_files", recursive=True, pattern=r"\.py$")) == ["a.py", "src/c.py"]
    assert "cannot be used" in await work.refused("list_files", pattern="(")


async def test_a_missing_folder_is_empty_and_a_file_is_none(work, tree):
    assert (await work("list_files", path="missing"))["files"] == []
    assert "not a folder" in await work.refused("list_files", path="a.py")


async def test_links_are_named_and_not_followed(work, tree, tmp_path):
    (tree / "src" / "up").symlink_to("..")
    (tree / "src" / "out").symlink_to(tmp_path)
    got = await work("list_files", path="src", recursive=True)
    assert names(got) == ["src/c.py", "src/deep", "src/deep/d.ts", "src/out", "src/up"]
    assert got["files"][4]["isLink"] is True
    assert not got["files"][4]["isDir"]


async def test_of_very_many_files_the_first_are_shown_and_all_are_counted(work, workspace):
    for n in range(3_000):
        (workspace / f"file-{n:04}").touch()
    got = await work("list_files")
    assert got["count"] == 3_000
    assert got["truncated"] is True
    assert 100 < len(got["files"]) < 3_000
    assert names(got)[0] == "file-0000"
    assert f"the first {len(got['files'])} are shown" in got["note"]


# ------------------------------------------------------------------ grep_files


async def test_each_line_that_matches_is_told_once(work, tree):
    got = await work("grep_files", pattern="needle", path="b.txt")
    assert got == {
        "matches": [{"file": "b.txt", "line": "needle needle", "lineNumber": 1, "match": "needle"}],
        "totalMatches": 1,
        "truncated": False,
    }


async def test_a_folder_is_searched_without_what_nobody_looks_for(work, tree):
    got = await work("grep_files", pattern="needle")
    assert [(one["file"], one["lineNumber"]) for one in got["matches"]] == [("a.py", 2), ("b.txt", 1), ("src/c.py", 1)]
    assert (await work("grep_files", pattern="needle", path=".git"))["totalMatches"] == 1


async def test_case_is_ignored_if_the_pattern_says_so(work, tree):
    assert (await work("grep_files", pattern="(?i)needle", path="src"))["totalMatches"] == 2


@pytest.mark.parametrize(
    ("include", "files"),
    [
        ("*.py", ["a.py", "src/c.py"]),
        ("*.{py,ts}", ["a.py", "src/c.py", "src/deep/d.ts"]),
        ("src/**/*.ts", ["src/deep/d.ts"]),
        ("**/*.py", ["a.py", "src/c.py"]),
        ("src/*.py", ["src/c.py"]),
        ("{a,b}.{py,txt}", ["a.py", "b.txt"]),
        ("*.none", []),
    ],
)
async def test_files_are_chosen_by_a_glob(work, tree, include, files):
    got = await work("grep_files", pattern="(?i)needle|import", include=include)
    assert sorted({one["file"] for one in got["matches"]}) == files


async def test_matches_beyond_those_wanted_are_counted(work, workspace):
    (workspace / "f").write_text("x\n" * 500)
    got = await work("grep_files", pattern="x", max_results=3)
    assert [one["lineNumber"] for one in got["matches"]] == [1, 2, 3]
    assert (got["totalMatches"], got["truncated"]) == (500, True)


async def test_lines_are_numbered_rightly_far_behind_in_a_big_file(work, workspace, fill):
    words = ("needle" if n % 50_000 == 0 else "hay" for n in range(1, 200_001))
    fill(workspace / "f", (f"line {n} {word} some more text to fill it\n" for n, word in enumerate(words, 1)))
    got = await work("grep_files", pattern="needle")
    assert [one["lineNumber"] for one in got["matches"]] == [50_000, 100_000, 150_000, 200_000]
    assert [one["line"].split()[1] for one in got["matches"]] == ["50000", "100000", "150000", "200000"]


@pytest.mark.parametrize("shift", range(-3, 4))
async def test_a_match_on_the_border_of_two_pieces_is_found(work, workspace, shift):
    head = "h\n" * 1000
    text = head + "x" * (CHUNK - len(head) + shift - 3) + "needle\nneedle"
    (workspace / "f").write_text(text)
    got = await work("grep_files", pattern="needle$")
    assert [one["lineNumber"] for one in got["matches"]] == [1001, 1002]


async def test_a_pattern_never_reaches_over_the_end_of_a_line(work, workspace):
    (workspace / "f").write_text("a\nb\n\na b\n")
    assert [m["lineNumber"] for m in (await work("grep_files", pattern=r"a\s+b"))["matches"]] == [4]
    assert [m["lineNumber"] for m in (await work("grep_files", pattern="^$"))["matches"]] == [3]
    assert [m["lineNumber"] for m in (await work("grep_files", pattern="^b$"))["matches"]] == [2]


async def test_a_long_line_is_shown_around_its_match(work, workspace):
    (workspace / "f").write_text("x" * 100_000 + "needle" + "y" * 100_000)
    [one] = (await work("grep_files", pattern="needle"))["matches"]
    assert "needle" in one["line"]
    assert len(one["line"]) < 500
    assert one["line"][0] == one["line"][-1] == "…"


async def test_binary_files_are_passed_over(work, workspace):
    (workspace / "f").write_bytes(b"\0needle")
    assert (await work("grep_files", pattern="needle"))["totalMatches"] == 0


async def test_bytes_that_are_no_utf8_hide_nothing(work, workspace):
    (workspace / "f").write_bytes(b"caf\xe9 needle\n")
    assert (await work("grep_files", pattern="needle"))["matches"][0]["line"] == "caf\ufffd needle"


async def test_no_result_is_longer_than_there_is_room(work, workspace):
    (workspace / "f").write_text(('"needle"' * 40 + "\n") * 1000)
    got = await work.with_room(5_000)("grep_files", pattern="needle", max_results=1000)
    assert got["truncated"]
    assert got["totalMatches"] == 1000


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(x+x+)+y", "((a*)*)*b", r"(\w+\s?)*!", "(.*a){20}z"])
async def test_a_pattern_that_would_run_for_ever_does_not(work, workspace, pattern):
    (workspace / "f").write_text("a" * 5000 + "\n" + "x" * 5000 + "\n" + "word " * 1000)
    with trio.fail_after(20):
        await work("grep_files", pattern=pattern)


@pytest.mark.parametrize("pattern", ["((((a{100}){100}){100}){100}){100}", "a{99999999}", "(" * 100_000, "x" * 100_000])
async def test_a_pattern_that_would_eat_all_memory_is_refused(work, workspace, pattern):
    assert "pattern" in await work.refused("grep_files", pattern=pattern)


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "[", "", "\ud800"])
async def test_a_pattern_that_cannot_be_used_is_refused_with_the_reason(work, pattern):
    assert "pattern" in await work.refused("grep_files", pattern=pattern)


async def test_a_search_whose_time_is_nearly_up_gives_what_it_has(work, workspace, monkeypatch):
    for n in range(3000):
        (workspace / f"{n:04}").write_text("needle\n")
    monkeypatch.setattr("pegasus.tools.files.tools.HURRY_AFTER", 0)
    with trio.fail_after(20):
        for name, arguments in (("grep_files", {"pattern": "needle"}), ("list_files", {"recursive": True})):
            got = await work(name, arguments)
            assert got["truncated"]
            assert "the time was up" in got["note"]


async def test_the_event_loop_goes_on_while_a_big_tree_is_searched(work, workspace, fill):
    fill(workspace / "f", ("some text to look through, again and again\n" for _ in range(600_000)))
    longest, done = 0.0, trio.Event()

    async def watch():
        nonlocal longest
        while not done.is_set():
            before = time.perf_counter()
            await trio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await work("grep_files", pattern="(look|again)+.*zzz")
        done.set()
    assert longest < 1


async def test_a_search_is_ended_by_its_deadline(work, workspace, fill):
    """Between two pieces, within a moment, not when it is through."""
    fill(workspace / "f", ("needle\n" for _ in range(2_000_000)))
    begun = time.perf_counter()
    with trio.move_on_after(0.05) as scope:
        await work("grep_files", pattern="needle")
    assert scope.cancelled_caught or time.perf_counter() - begun < 5


# ------------------------------------------------------------------ against other engines


LINES = st.lists(st.text(alphabet="ab \t", max_size=8), max_size=12)
PATTERNS = st.sampled_from(
    ["a", "a+b", "^a", "b$", "^$", "a.b", "[ab]{3}", r"\s", "(a|b)*a$", r"^\s+$", "b|a b", "^(ab)+$"]
)


@given(LINES, PATTERNS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_same_lines_are_found_as_by_python(lines, pattern):
    text = "\n".join(lines).encode()
    found, position = [], 0
    compiled = compile_pattern(pattern)
    while position <= len(text) and (match := compiled.search(text, position)):
        found.append(text.count(b"\n", 0, match.start()))
        end = text.find(b"\n", match.end())
        if end < 0:
            break
        position = end + 1
    assert found == [n for n, line in enumerate("\n".join(lines).split("\n")) if re.search(pattern, line)]


def test_braces_without_end_are_refused():
    with pytest.raises(ToolError, match="stands for more than"):
        compile_glob("{a,b}" * 20)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a/b.py", True),
        ("a/*.py", "a/b.py", True),
        ("a/*.py", "b/b.py", False),
        ("{x,{y,z}}.c", "z.c", True),
        ("[ab].c", "a.c", True),
        ("./a.c", "a.c", True),
        ("*.PY", "a.py", False),
        ("{a", "{a", True),
    ],
)
def test_globs(pattern, path, fits):
    assert compile_glob(pattern)(path) is fits


async def test_what_cannot_be_read_is_counted_and_the_rest_is_searched(work, tree, monkeypatch):
    os_open = os.open

    def refuse(path, flags, *args, **kwargs):
        if path in ("a.py", "deep"):
            raise PermissionError(13, "Permission denied")
        return os_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    got = await work("grep_files", pattern="(?i)needle")
    assert [one["file"] for one in got["matches"]] == ["b.txt", "src/c.py"]
    assert got["note"] == "2 could not be read"
