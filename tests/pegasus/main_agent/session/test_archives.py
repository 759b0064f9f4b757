"""Reading what was put aside."""

import json
import os

import pytest
import trio

from pegasus.conversation.entry import Entry, encode
from pegasus.main_agent.session import StoredArchives, archive_tool, is_archive, page_of
from pegasus.main_agent.session.archives import archive_names
from pegasus.models.base import ToolCall
from pegasus.storage import FolderFiles
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.world import DiskArchives
from pegasus.tools import ToolContext
from tests.pegasus.tools.calling import run_tool

NAME = "2026-02-25-143000.jsonl"
TS = 1_772_029_800_000


def lines(count=120, text="text"):
    return [encode(Entry(TS + n * 1000, "user", f"{text} {n}")) for n in range(1, count + 1)]


def tool(content=b"", name=NAME):
    disk = MemoryDisk()
    disk.put(f"main/{name}", content)
    disk.put("main/current.jsonl", b"secret")
    disk.put("inbox/inbox.jsonl", b"secret")
    return archive_tool(lambda chat: DiskArchives(disk))


async def read(made, max_result=25_600, **arguments):
    outcome = await run_tool(made, arguments, 10, ToolContext(max_result=max_result))
    return outcome.content if outcome.failed else json.loads(outcome.content)


async def test_an_archive_is_read_page_by_page(autojump_clock):
    made = tool(b"".join(lines()))
    first = await read(made, file=NAME)
    assert first["text"].splitlines()[0] == "1. [2026-02-25 14:30:01] user: text 1"
    assert first["next"] == {"offset": 51}
    last = await read(made, file=NAME, offset=101, limit=500)
    assert last["text"].splitlines()[-1].endswith("text 120")
    assert "next" not in last


async def test_every_character_of_it_can_be_read_however_long_a_line_is(autojump_clock):
    texts = ["short", 'quote"\n' * 4_000, "好" * 9_000, "end"]
    made = tool(b"".join(encode(Entry(TS, "user", text)) for text in texts))
    seen, where = [], {"offset": 1}
    while where:
        page = await read(made, max_result=2_000, file=NAME, **where)
        assert len(json.dumps(page, ensure_ascii=False)) <= 2_000
        seen.append((where["offset"], page["text"]))
        where = page.get("next")
    for number, text in enumerate(texts, 1):
        assert text in "".join(part for offset, part in seen if offset <= number).replace(f"\n{number}.", f"{number}.")


async def test_calls_results_and_notes_are_told_apart(autojump_clock):
    entries = [
        Entry(TS, "system", "Summary", metadata={"type": "compact"}),
        Entry(TS, "assistant", "I think", (ToolCall("c", "reply", {"text": "hällo"}),)),
        Entry(TS, "tool", "Error: no", call_id="c", failed=True),
    ]
    page = await read(tool(b"".join(map(encode, entries))), file=NAME)
    assert page["text"].splitlines() == [
        "1. [2026-02-25 14:30:00] system, compact: Summary",
        "2. [2026-02-25 14:30:00] assistant: I think",
        '  → reply {"text":"hällo"}',
        "3. [2026-02-25 14:30:00] tool, failed: Error: no",
    ]


async def test_a_damaged_line_hides_nothing_around_it(autojump_clock):
    good = lines(2)
    damaged = [b"{torn\n", b"\xff\xfe\n", b'"text"\n', b'{"role":"nobody"}\n', b"[" * 100_000 + b"\n"]
    page = await read(tool(good[0] + b"".join(damaged) + good[1]), file=NAME)
    assert page["text"].count("a damaged line") == 5
    assert page["text"].splitlines()[-1].startswith("7. [2026")


@pytest.mark.parametrize(
    "name",
    [
        "current.jsonl",
        "",
        "../inbox/inbox.jsonl",
        f"../main/{NAME}",
        f"/etc/{NAME}",
        f"x{NAME}",
        f"{NAME}\n",
        "2026-02-25-143000.jsonl.bad-1",
        "2026-02-25-143000.jsonl/..",
        "2099-01-01-000000.jsonl",
        "x" * 10_000,
    ],
)
async def test_nothing_but_an_archive_is_read(autojump_clock, name):
    answer = await read(tool(b"".join(lines(1))), file=name)
    assert answer.startswith("Error: ")
    assert "secret" not in answer
    assert len(answer) < 400
    assert NAME in answer or name == "current.jsonl"


@pytest.mark.parametrize(
    "wrong", [{"offset": 0}, {"limit": 0}, {"limit": 501}, {"offset": "1"}, {"skip": -1}, {"dir": "x"}]
)
async def test_arguments_out_of_bounds_are_refused(autojump_clock, wrong):
    assert (await read(tool(b"".join(lines(1))), file=NAME, **wrong)).startswith("Error: ")


async def test_behind_the_end_there_is_an_error_and_not_silence(autojump_clock):
    assert "ends before line 9" in await read(tool(b"".join(lines(3))), file=NAME, offset=9)
    assert (await read(tool(b""), file=NAME))["text"] == ""


async def test_where_nothing_was_archived_the_error_says_so(autojump_clock):
    assert "nothing was archived" in await read(archive_tool(lambda chat: DiskArchives(MemoryDisk())), file="yesterday")


def test_names_are_known_and_in_order(tmp_path):
    names = [
        NAME,
        "2026-02-25-143000-2.jsonl",
        "2026-02-25-143000-10.jsonl",
    ]
    assert archive_names(FolderFiles(tmp_path)) == ()
    (tmp_path / "main").mkdir()
    for name in [*names, "current.jsonl", "x.jsonl"]:
        (tmp_path / "main" / name).write_bytes(b"")
    assert all(map(is_archive, names))
    assert list(archive_names(FolderFiles(tmp_path))) == names


async def test_on_real_files_nothing_but_regular_files_is_read(tmp_path):
    folder = tmp_path / "main"
    folder.mkdir()
    (folder / NAME).write_bytes(b"".join(lines(3)))
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path / "secret", folder / "2026-01-01-000000.jsonl")
    os.mkfifo(folder / "2026-01-01-000001.jsonl")
    (folder / "2026-01-01-000002.jsonl").mkdir()
    made = archive_tool(lambda chat: StoredArchives(FolderFiles(tmp_path)))
    with trio.fail_after(5):
        assert (await read(made, file=NAME, offset=3))["text"].endswith("text 3")
        for n in range(3):
            assert (await read(made, file=f"2026-01-01-00000{n}.jsonl")).startswith("Error: ")


def test_a_page_ends_before_a_line_that_has_no_room():
    page = page_of(lines(3, "x" * 100), 1, 0, 50, 200)
    assert page.next == (2, 0)
