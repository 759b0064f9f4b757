"""What is old: removed when it is old and the clock can be trusted, and only then."""

import os
from types import SimpleNamespace

import pytest
import trio

from pegasus.main_agent import remove_old_archives
from pegasus.settings import LiveValue
from pegasus.storage import FileDisk, RemoveOldFiles, media_rule, remove_old_files, retention
from pegasus.storage.volume import Volume
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.world import START
from tests.pegasus.storage.conftest import run_journal

DAY = 86_400_000


class Clock:
    """A wall clock that follows Trio's until it is set."""

    def __init__(self):
        self.ahead = 0

    def __call__(self):
        return START + self.ahead + int(trio.current_time() * 1000)


def disk_with(**ages):
    """Files in data/media, by their age in days."""
    disk = MemoryDisk()
    for name, days in ages.items():
        for path in (f"media/{name}.png", f"transcripts/{name}.json"):
            disk.put(path, b"x")
            disk.files.names[path].written = START - days * DAY
    return disk


def left(disk):
    return {
        path.partition("/")[2].partition(".")[0] for path in disk.paths() if path.startswith(("media/", "transcripts/"))
    }


class Inbox:
    """Nobody sends it anything."""

    def started(self):
        """Nobody waits for it."""


class Journal:
    """The files of a journal, without the messages, which would wake it up all the time."""

    def __init__(self, disk):
        self.disk = disk

    async def ask(self, make, *arguments):
        request = make(None, *arguments)
        fields = (request.paths, request.since, request.before, request.limit, request.names, request.spared)
        return await self.disk.run(Volume.remove_old, *fields)


async def lives(disk, hours, clock=None, keep_days=90):
    with trio.move_on_after(hours * 3600 + 1):
        rule = media_rule(Journal(disk), LiveValue(keep_days))
        await remove_old_files(Inbox(), clock or Clock(), [rule])


async def test_what_is_older_than_the_setting_is_removed_and_the_rest_stays(autojump_clock):
    disk = disk_with(old=91, young=89)
    disk.put("main/other.jsonl", b"x")
    await lives(disk, 2)
    assert left(disk) == {"young"}
    assert disk.content("main/other.jsonl") == b"x"


@pytest.mark.parametrize(("days", "kept"), [(0, {"a", "b"}), (1, {"a"}), (40, {"a", "b"})])
async def test_zero_keeps_everything_and_no_number_is_below_what_a_reply_may_wait(autojump_clock, days, kept):
    disk = disk_with(a=30, b=35)
    await lives(disk, 2, keep_days=days)
    assert left(disk) == kept


async def test_a_clock_that_is_set_back_removes_nothing(autojump_clock):
    disk, clock = disk_with(a=80), Clock()
    clock.ahead = -3650 * DAY
    await lives(disk, 5, clock)
    assert left(disk) == {"a"}


async def test_a_clock_that_is_set_forward_removes_nothing_for_a_week(autojump_clock):
    disk, clock = disk_with(a=60), Clock()
    async with trio.open_nursery() as nursery:
        rules = [media_rule(Journal(disk), LiveValue(90))]
        nursery.start_soon(remove_old_files, Inbox(), clock, rules)
        await trio.sleep(100)
        clock.ahead = 3650 * DAY
        await trio.sleep(6 * 86_400)
        assert left(disk) == {"a"}
        clock.ahead = 0  # somebody has noticed
        await trio.sleep(8 * 86_400)
        assert left(disk) == {"a"}
        nursery.cancel_scope.cancel()


async def test_the_journal_removes_them_between_its_other_work(autojump_clock):
    disk = disk_with(old=100, young=1)
    async with run_journal(disk) as journal:
        assert await journal.ask(RemoveOldFiles, ("media",), 0, START - 90 * DAY, 10) == ("media/old.png",)
    assert "media/old.png" not in disk.paths()
    assert "media/young.png" in disk.paths()


async def test_what_was_written_while_the_clock_stood_at_its_beginning_stays(autojump_clock):
    disk = disk_with(a=START // DAY - 1)
    await lives(disk, 5)
    assert left(disk) == {"a"}


async def test_only_so_many_are_removed_at_once(autojump_clock):
    disk = disk_with(**{f"f{number}": 100 for number in range(1200)})
    await lives(disk, 1)
    assert len(left(disk)) == 700
    disk = disk_with(**{f"f{number}": 100 for number in range(1200)})
    await lives(disk, 4)
    assert left(disk) == set()


async def test_a_real_folder_loses_its_old_files_and_nothing_else(tmp_path):
    (tmp_path / "media" / "inner").mkdir(parents=True)
    for name, age in {"old": 100, "young": 1}.items():
        path = tmp_path / "media" / name
        path.write_bytes(b"x")
        os.utime(path, (START / 1000 - age * 86_400,) * 2)
    (tmp_path / "outside").write_bytes(b"x")
    os.symlink(tmp_path / "outside", tmp_path / "media" / "link")
    disk = FileDisk(tmp_path)
    assert await disk.run(Volume.remove_old, ("media",), 0, START - 50 * DAY, 10, ".*", ()) == ("media/old",)
    assert sorted(path.name for path in (tmp_path / "media").iterdir()) == ["inner", "link", "young"]
    assert await disk.run(Volume.remove_old, ("missing",), 0, START, 10, ".*", ()) == ()


async def test_a_folder_that_is_empty_then_goes_as_well(tmp_path):
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / "tasks" / day).mkdir(parents=True)
        for name in ("a.jsonl", "b.jsonl", "a.jsonl.bad-1", "notes.txt"):
            (tmp_path / "tasks" / day / name).write_bytes(b"x")
            os.utime(tmp_path / "tasks" / day / name, (START / 1000 - 100 * 86_400,) * 2)
    (tmp_path / "tasks/2026-01-02/notes.txt").unlink()
    disk, folders = FileDisk(tmp_path), ("tasks/2026-01-01", "tasks/2026-01-02")
    await disk.run(
        Volume.remove_old, folders, 0, START - DAY, 100, r"\w+\.jsonl(\.bad-\d+)?", {"tasks/2026-01-01/b.jsonl"}
    )
    assert sorted(path.name for path in (tmp_path / "tasks").rglob("*")) == ["2026-01-01", "b.jsonl", "notes.txt"]


async def test_archives_go_and_the_last_of_each_conversation_stays(tmp_path):
    """What a session continues stays, and so do sessions themselves, files of others, and names that only look alike."""
    old = [
        *("main/2026-01-01-000000.jsonl", "main/2026-01-02-000000.jsonl"),
        *("sessions/web%3Aa.2026-01-01-000000.jsonl", "sessions/web%3Aa.2026-01-01-000000-2.jsonl"),
        "sessions/web%3Ab.2026-01-01-000000.jsonl",
    ]
    others = ["main/current.jsonl", "main/notes.jsonl", "main/current.jsonl.bad-1", "sessions/web%3Aa.jsonl"]
    young = ["sessions/web%3Ac.2026-01-01-000000.jsonl", "sessions/web%3Ac.2026-02-01-000000.jsonl"]
    for number, name in enumerate([*old, *others, *young]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{}\n")
        age = 1 if name == young[1] else 100
        os.utime(path, (START / 1000 - age * 86_400 + number,) * 2)
    async with run_journal(FileDisk(tmp_path)) as journal:
        gone = await remove_old_archives(journal, 0, START - 50 * DAY, 10)
    assert set(gone) == {old[0], old[2], young[0]}
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jsonl*")}
    assert left - {"inbox/inbox.jsonl", "outbox/outbox.jsonl"} == {*old, *others, *young} - set(gone)


async def test_the_log_names_what_was_removed(autojump_clock, monkeypatch):
    said = []
    monkeypatch.setattr(retention, "_log", SimpleNamespace(info=lambda text, **facts: said.append(facts)))
    await lives(disk_with(old=91, young=89), 3)
    [facts] = said
    assert (facts["files"], facts["names"]) == (2, "media/old.png, transcripts/old.json")
