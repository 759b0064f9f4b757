"""The room of memory: list, read, write, patch, append; by the journal, by hand, by several at once."""

import os
import re
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio
import trio.testing

from actors import ActorDied, Child, Restart, open_supervisor
from pegasus.memory import Memory, MemoryRefused
from pegasus.memory.folder import LARGEST
from pegasus.memory.memory import FACTS_SHOWN, FULL
from pegasus.memory.pages import EPISODE_INDEX, MOST, MemoryFile, index_limit, index_message
from pegasus.storage import StorageError, run_journal
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.world import DiskMemoryFolder


async def test_memory_that_is_empty_is_no_error(memory):
    assert await memory.list() == ()
    assert await memory.index_message(100_000) == ""
    with pytest.raises(MemoryRefused, match="It is empty"):
        await memory.read("facts/user.md")


async def test_what_is_written_is_read_and_listed(memory, folder):
    text = "# User\n\n> Summary: who the user is\n\n- Name: Ann\n"
    assert (await memory.write("facts/user.md", text)).size == len(text)
    assert await memory.read("facts/user.md") == text
    assert (folder / "facts/user.md").read_text() == text
    assert await memory.list() == (MemoryFile("facts/user.md", "who the user is", len(text)),)


async def test_a_file_ends_with_a_line_end(memory, folder):
    await memory.write("facts/a.md", "x")
    assert (folder / "facts/a.md").read_text() == "x\n"


@pytest.mark.parametrize("new", ["$&", "$'", r"\1", "", "new\n"])
async def test_a_patch_is_taken_literally(memory, new):
    """Neither text is a pattern or a template."""
    await memory.write("facts/a.md", "before OLD after")
    await memory.patch("facts/a.md", "OLD", new)
    assert await memory.read("facts/a.md") == f"before {new} after\n"


async def test_a_patch_wants_exactly_one_match(memory):
    await memory.write("facts/a.md", "aaa b b")
    for old, why in (("x", "is not in"), ("b", "more than once"), ("aa", "more than once"), ("", "is empty")):
        with pytest.raises(MemoryRefused, match=why):
            await memory.patch("facts/a.md", old, "y")
    assert await memory.read("facts/a.md") == "aaa b b\n"


async def test_entries_are_appended_one_after_the_other(memory):
    await memory.append("episodes/2026-02.md", "## First\n- Summary: a", "what happened")
    await memory.append("episodes/2026-02.md", "## Second\n- Summary: b")
    text = "# 2026-02\n\n> Summary: what happened\n\n## First\n- Summary: a\n\n## Second\n- Summary: b\n"
    assert await memory.read("episodes/2026-02.md") == text
    with pytest.raises(MemoryRefused, match="entry is empty"):
        await memory.append("episodes/2026-02.md", " \n")


async def test_two_that_add_to_one_file_at_once_both_find_their_words_in_it(memory):
    async with trio.open_nursery() as nursery:
        for n in range(20):
            nursery.start_soon(memory.append, "facts/a.md", f"- n: {n}")
    text = await memory.read("facts/a.md")
    assert sorted(line for line in text.splitlines() if line.startswith("-")) == sorted(f"- n: {n}" for n in range(20))


async def test_what_people_write_by_hand_is_seen_at_the_next_look(memory, put):
    await memory.write("facts/a.md", "# A\n\n> Summary: old\n")
    put("facts/a.md", "\ufeff# A\r\n\r\n> Summary: by hand\r\n\r\n- x: 1\r\n")
    put("facts/mine.md", "just text")
    assert [file.summary for file in await memory.list()] == ["by hand", "just text"]
    await memory.append("facts/a.md", "- y: 2")
    assert await memory.read("facts/a.md") == "# A\n\n> Summary: by hand\n\n- x: 1\n- y: 2\n"


async def test_files_of_people_at_the_top_and_in_other_folders_are_read_but_not_made(memory, put):
    put("notes.md", "# Notes")
    put("other/x.md", "# X")
    put("other/deep/y.md", "# Y")
    put("facts/x.txt", "no")
    assert [file.path for file in await memory.list()] == ["notes.md", "other/x.md"]
    await memory.patch("other/x.md", "X", "Z")
    assert await memory.read("other/x.md") == "# Z\n"
    with pytest.raises(MemoryRefused, match="allowed"):
        await memory.write("other/new.md", "x")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "user.md",
        "facts/",
        "facts/user",
        "facts/user.txt",
        "facts/.md",
        "facts/.hidden.md",
        "facts/a/b.md",
        "../x.md",
        "facts/../../x.md",
        "facts/..md/../x.md",
        "/etc/x.md",
        "facts//x.md",
        "facts/a\0.md",
        "facts/a\n.md",
        "facts/" + "x" * 100 + ".md",
        "facts/-rf.md",
        "~/x.md",
        "facts/\ud800.md",
    ],
)
async def test_other_names_are_refused_with_what_is_allowed(memory, folder, path):
    for change in (partial(memory.write, path, "x"), partial(memory.append, path, "x")):
        with pytest.raises(MemoryRefused, match=r"allowed: facts/NAME\.md or episodes/NAME\.md"):
            await change()
    for look in (partial(memory.read, path), partial(memory.patch, path, "a", "b")):
        with pytest.raises(MemoryRefused, match="there is no"):
            await look()
    assert not folder.exists()


@pytest.mark.parametrize(
    "path", ["facts/ünïcödé.md", "facts/日本.md", "facts/my project 2.1.md", "episodes/2026-02.md"]
)
async def test_names_in_every_language(memory, path):
    await memory.write(path, "x")
    assert await memory.read(path) == "x\n"


async def test_a_name_that_differs_only_by_case_or_composition_is_refused(memory):
    await memory.write("facts/Caf\u00e9.md", "x")
    for path in ("facts/caf\u00e9.md", "facts/Cafe\u0301.md"):
        with pytest.raises(MemoryRefused, match=r"there is facts/Café\.md already|allowed"):
            await memory.write(path, "y")


async def test_links_pipes_and_folders_are_not_seen_and_not_written_through(memory, folder, tmp_path, put):
    """A link could lead a reader or a change to a file outside of memory."""
    (tmp_path / "secret.md").write_text("secret")
    put("facts/real.md", "x")
    (folder / "facts" / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "facts" / "pipe.md")
    (folder / "facts" / "folder.md").mkdir()
    assert [file.path for file in await memory.list()] == ["facts/real.md"]
    for path in ("facts/link.md", "linked/secret.md", "facts/pipe.md"):
        with pytest.raises(MemoryRefused, match="there is no"):
            await memory.read(path)
    assert (tmp_path / "secret.md").read_text() == "secret"


async def test_a_file_whose_name_is_no_text_does_not_keep_memory_from_working(memory, folder, put):
    """Unpacked from an old archive, say. It is not seen: no log, no index and no model could say its name."""
    put("facts/user.md", "x")
    (folder / "facts" / os.fsdecode(b"caf\xe9.md")).write_text("y")
    os.mkdir(os.fsencode(folder) + b"/caf\xe9")
    (folder / os.fsdecode(b"caf\xe9") / "a.md").write_text("z")
    assert [file.path for file in await memory.list()] == ["facts/user.md"]
    await memory.append("facts/user.md", "- more")
    assert [change.path for change in await memory.log()] == ["facts/user.md"] * 2


async def test_what_a_person_has_put_there_and_is_no_file_is_not_replaced(memory, folder, tmp_path, put):
    """A link into a folder of notes, say: whoever has made it would find it cut, and the notes going stale."""
    (tmp_path / "notes.md").write_text("notes")
    put("facts/user.md", "x")
    (folder / "facts" / "link.md").symlink_to(tmp_path / "notes.md")
    (folder / "facts" / "nowhere.md").symlink_to(tmp_path / "nowhere.md")
    os.mkfifo(folder / "facts" / "pipe.md")
    for path, words in (("link", "symbolic link"), ("nowhere", "symbolic link"), ("pipe", "no regular file")):
        with pytest.raises(OSError, match=words):
            await memory.write(f"facts/{path}.md", "mine")
        with pytest.raises(OSError, match=words):
            await memory.append(f"facts/{path}.md", "mine")
    assert (folder / "facts" / "link.md").is_symlink()
    assert (tmp_path / "notes.md").read_text() == "notes"
    assert [file.path for file in await memory.list()] == ["facts/user.md"]


async def test_an_undo_does_not_replace_a_link_either(memory, folder, tmp_path):
    await memory.write("facts/user.md", "one")
    await memory.write("facts/user.md", "two")
    (folder / "facts" / "user.md").rename(tmp_path / "notes.md")
    (folder / "facts" / "user.md").symlink_to(tmp_path / "notes.md")
    edit = (await memory.log())[0]
    with pytest.raises(OSError, match="symbolic link"):
        await memory.undo(edit.n)
    assert (tmp_path / "notes.md").read_text() == "two\n"


async def test_a_folder_that_is_a_link_is_not_written_through(memory, folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    folder.mkdir(parents=True)
    (folder / "facts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        await memory.write("facts/a.md", "x")
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_huge_file_is_listed_but_refused_with_a_hint(memory, put):
    put("facts/huge.md", "# Huge\n\n> Summary: big\n" + "x" * 5_000_000)
    [file] = await memory.list()
    assert (file.summary, file.size > LARGEST) == ("big", True)
    for call in (
        partial(memory.read, "facts/huge.md"),
        partial(memory.patch, "facts/huge.md", "big", "small"),
        partial(memory.append, "facts/huge.md", "x"),
    ):
        with pytest.raises(MemoryRefused, match="split it by hand"):
            await call()


async def test_a_file_does_not_grow_beyond_the_limit(memory):
    await memory.write("facts/a.md", "x" * (FULL - 200))
    with pytest.raises(MemoryRefused, match="another file"):
        await memory.append("facts/a.md", "y" * 200)
    with pytest.raises(MemoryRefused, match="another file"):
        await memory.write("facts/b.md", "é" * (FULL // 2 + 1))
    assert len(await memory.read("facts/a.md")) == FULL - 199


async def test_there_are_so_many_files_and_no_more(memory, put):
    for n in range(MOST):
        put(f"facts/{n}.md", "x")
    with pytest.raises(MemoryRefused, match="add to one of them"):
        await memory.write("facts/one-more.md", "x")
    await memory.append("facts/0.md", "y")


async def test_a_file_that_is_no_utf8_is_shown_but_not_changed_by_parts(memory, put, folder):
    put("facts/a.md", b"caf\xe9 x")
    assert await memory.read("facts/a.md") == "caf\ufffd x"
    for call in (partial(memory.patch, "facts/a.md", "x", "y"), partial(memory.append, "facts/a.md", "y")):
        with pytest.raises(MemoryRefused, match="not UTF-8"):
            await call()
    assert (folder / "facts/a.md").read_bytes() == b"caf\xe9 x"


async def test_text_that_is_no_unicode_is_refused(memory):
    with pytest.raises(MemoryRefused, match="half of a pair"):
        await memory.write("facts/a.md", "\ud800")


# ------------------------------------------------------------------ what others are shown


async def test_the_index_message_of_the_first_thought(memory, put):
    put("facts/user.md", "# User\n\n> Summary: who the user is\n")
    put("episodes/2026-02.md", "# 2026-02\n\n> Summary: February\n" + "x" * 1200)
    header, first, second, _, instruction = (await memory.index_message(100_000)).split("\n")
    assert header.startswith("[Memory")
    assert first == "episodes/2026-02.md (1.2KB): February"
    assert second == "facts/user.md (35B): who the user is"
    assert "memory_read" in instruction


async def test_the_index_knows_of_every_change_at_once(memory, put):
    put("facts/a.md", "# A\n")
    assert "facts/a.md" in await memory.index_message(100_000)
    put("facts/by_hand.md", "# B\n")
    assert "by_hand" in await memory.index_message(100_000)
    await memory.write("facts/c.md", "new")
    assert "facts/c.md" in await memory.index_message(100_000)
    [change, *_] = await memory.log()
    await memory.undo(change.n)
    assert "facts/c.md" not in await memory.index_message(100_000)


def test_an_index_of_very_many_files_is_not_endless():
    message = index_message(tuple(MemoryFile(f"facts/{n}.md", "x" * 160, 10) for n in range(1000)))
    assert len(message) < EPISODE_INDEX * 2.1
    assert "more; memory_search finds them)" in message


async def test_the_index_for_a_small_window_names_the_user_first_and_the_newest_episodes(memory, put):
    for n in range(10, 90):
        put(f"episodes/20{n}-01.md", f"# E\n\n> Summary: episode {n}\n")
    put("facts/a.md", "# A\n")
    put("facts/user.md", "# User\n\n> Summary: who the user is\n")
    _, first, second, third, *_, more, _, _ = (await memory.index_message(4_096)).split("\n")
    assert first == "facts/user.md (35B): who the user is"
    assert second.startswith("facts/a.md")
    assert third.endswith("episode 89")
    assert re.fullmatch(r"\(\d+ more; memory_search finds them\)", more)
    assert "episodes/2010-01.md" in await memory.index_message(100_000)


@pytest.mark.parametrize(("window", "limit"), [(0, 1_500), (4_096, 1_500), (32_000, 6_400), (200_000, 20_000)])
def test_the_index_has_room_by_the_window(window, limit):
    assert index_limit(window) == limit
    files = tuple(MemoryFile(f"facts/{n}.md", "é" * 160, 10) for n in range(500))
    assert limit - 400 < sum(map(len, index_message(files, limit).splitlines()[1:-3])) <= limit


async def test_a_reflection_sees_facts_in_full_and_episodes_by_summary_newest_first(memory, put):
    put("facts/user.md", "# User\n\n> Summary: s\n\n- Name: Ann\n")
    put("episodes/2026-01.md", "# 2026-01\n\n> Summary: January\n\nlong story\n")
    put("episodes/2026-02.md", "# 2026-02\n\n> Summary: February\n\nlong story\n")
    shown = await memory.for_reflection()
    assert "- Name: Ann" in shown
    assert "long story" not in shown
    assert shown.index("February") < shown.index("January")


async def test_a_reflection_of_too_much_memory_is_cut_but_names_everything(memory, put):
    for n in range(5):
        put(f"facts/{n}.md", "x" * (FACTS_SHOWN // 4))
    put("facts/huge.md", "x" * (LARGEST + 1))
    for n in range(200):
        put(f"episodes/{n:03}.md", "# T\n\n> Summary: " + "s" * 150)
    shown = await memory.for_reflection()
    assert len(shown) < FACTS_SHOWN + EPISODE_INDEX + 2_000
    assert all(f"facts/{n}.md" in shown for n in (*range(5), "huge"))
    assert "more; memory_list shows all)" in shown


async def test_a_reflection_of_nothing(memory):
    assert (await memory.for_reflection()).count("(none yet)") == 2


# ------------------------------------------------------------------ crashes


OLD, NEW = "# A\n\n> Summary: s\n\n- a: 1\n", "# A\n\n> Summary: s\n\n- a: 1\n- b: 2\n"


@asynccontextmanager
async def on(disk, restart=Restart.TEMPORARY):
    child = Child("journal", partial(run_journal, clock=lambda: 0), disk, restart=restart)
    async with open_supervisor([child]) as supervisor:
        yield Memory(supervisor.ref("journal"), DiskMemoryFolder(disk))


async def test_a_loss_of_power_leaves_the_old_file_or_the_new_one_and_a_log_that_says_which():
    """The log is written first; what it says and the file does not have is void at the next look."""
    seen = set()
    for operation in range(1, 40):
        disk = MemoryDisk()
        async with on(disk) as memory:
            await memory.write("facts/a.md", OLD)
            disk.lose_power(operation)
            told = False
            with suppress(ActorDied):
                await memory.append("facts/a.md", "- b: 2")
                told = True
        disk.crash()
        left = disk.content("memory/facts/a.md").decode()
        assert left == NEW or not told
        async with on(disk) as memory:
            assert await memory.read("facts/a.md") == left
            assert [change.how for change in await memory.log()] == ["append", "write"][left == OLD :]
            await memory.append("facts/a.md", "- c: 3")
            assert (await memory.log())[0].n == 3 - (left == OLD and disk_forgot(disk))
        seen.add((left, told))
        if told:
            break
    assert seen == {(OLD, False), (NEW, True)}


def disk_forgot(disk):
    """Whether the change that was not made is not even in the log."""
    return b'"void"' not in disk.content("memory/.log/changes.jsonl")


async def test_a_disk_that_refuses_leaves_the_old_file(memory):
    disk = MemoryDisk()
    disk.put("memory/facts/a.md", OLD.encode())
    async with open_supervisor([Child("journal", partial(run_journal, clock=lambda: 0), disk)]) as supervisor:
        memory = Memory(supervisor.ref("journal"), DiskMemoryFolder(disk))
        await memory.read("facts/a.md")
        disk.fail(times=20)
        with pytest.raises(StorageError):
            await memory.append("facts/a.md", "- b: 2")
        assert await memory.read("facts/a.md") == OLD


async def test_a_file_that_somebody_made_long_is_read_whole(memory, put):
    put("facts/long.md", "x" * LARGEST)
    assert len(await memory.read("facts/long.md")) == LARGEST
    with pytest.raises(MemoryRefused, match="another file"):
        await memory.append("facts/long.md", "y")
