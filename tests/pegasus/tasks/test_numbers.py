"""Short numbers of tasks: lines of the index, stable over restarts and damage, accepted wherever an id is."""

import errno

import pytest
import trio

from pegasus.storage import StorageError
from pegasus.tasks import Cancel, GetTask, LatestTasks, ListTasks, TaskError, TaskLimits, Wait
from pegasus.tasks.core.views import parse_number
from pegasus.tasks.log.format import (
    INDEX,
    IndexEntry,
    find_entries,
    find_latest,
    find_numbered,
    index_line,
    last_number,
    task_path,
)
from pegasus.tasks.log.task_logs import (
    FindNumbered,
    ReadLatest,
    ReadLogs,
    RecordEvents,
    StoredLog,
    read_numbers,
    read_task,
)
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import Hang, ScriptedModel
from tests.pegasus.tasks.lives import task_lines
from tests.pegasus.tasks.test_persister import DATE, created, running, told
from tests.pegasus.tasks.world import open_desk

A, B, C = "a" * 16, "b" * 16, "c" * 16


def test_the_number_of_a_task_is_that_of_its_line_whatever_the_lines_around_it_are():
    index = index_line(A, DATE) + b"garbage\n" + b"\n" + index_line(B, DATE) + b'{"taskId":"cc'
    assert find_entries(index, (B, A, C)) == {A: (1, IndexEntry(A, DATE)), B: (4, IndexEntry(B, DATE))}
    assert [find_numbered(index, n) for n in (1, 2, 3, 4, 5, 0, -1)] == [A, None, None, B, None, None, None]
    assert last_number(index) == 4


@pytest.mark.parametrize(
    ("count", "newest"), [(0, {}), (1, {}), (2, {B: 4}), (5, {A: 1, B: 4}), (9, {A: 1, B: 4})], ids=str
)
def test_the_newest_tasks_are_those_of_the_last_lines(count, newest):
    index = index_line(A, DATE) + b"garbage\n" + b"\n" + index_line(B, DATE) + b"bad\n" + b'{"taskId":"cc'
    assert find_latest(index, count) == newest


@pytest.mark.parametrize(
    ("name", "number"),
    [("7", 7), ("#12", 12), (" 3 ", 3), ("0", 0), ("-1", 0), ("1" * 16, 0), ("٣", 0), ("a1", 0), ("", 0), ("#", 0)],
)
def test_a_person_writes_a_number(name, number):
    assert parse_number(name) == number


def fail_to_read(disk, damaged):
    """A list that receives the paths of all reads; those of `damaged` fail."""
    reads, read = [], disk.files.read

    def watched(path, *span):
        reads.append(path)
        if path == damaged:
            raise OSError(errno.EIO, "damaged")
        return read(path, *span)

    disk.files.read = watched
    return reads


async def record(it, *events):
    return await it.persister.ask(RecordEvents, events)


async def numbers(it, *task_ids):
    return [log.number for log in await it.persister.ask(ReadLogs, task_ids)]


async def test_numbers_go_on_behind_what_is_on_disk(autojump_clock):
    disk = MemoryDisk()
    disk.put(INDEX, index_line(A, DATE) + index_line(B, DATE))
    async with running(disk) as it:
        assert await record(it, created(), told()) == {created().task_id: 3}
        assert await it.persister.ask(FindNumbered, 2) == (B, 3)
        assert await it.persister.ask(FindNumbered, 9) == (None, 3)
        assert await numbers(it, B, C, created().task_id) == [2, 0, 3]


async def test_the_number_of_a_torn_line_is_not_given_again(autojump_clock):
    disk = MemoryDisk()
    disk.put(
        INDEX, index_line(A, DATE) + index_line(B, DATE)[:-1]
    )  # complete but for its end: somebody may know number 2
    async with running(disk) as it:
        assert await record(it, created()) == {created().task_id: 3}
        assert await numbers(it, A) == [1]


async def test_the_newest_tasks_are_read_together_and_one_whose_log_is_damaged_holds_up_no_other(autojump_clock):
    disk = MemoryDisk()
    disk.put(INDEX, index_line(A, DATE) + index_line(B, DATE) + index_line(C, DATE))
    disk.put(task_path(A, DATE), b"a\n")
    disk.put(task_path(C, DATE), b"c\n")
    async with running(disk) as it:
        reads = fail_to_read(disk, task_path(B, DATE))
        found = await it.persister.ask(ReadLatest, 3, {C})
        assert isinstance(found.pop(B).content, StorageError)
        assert list(found.items()) == [(A, StoredLog(1, b"a\n")), (C, StoredLog(3, b""))]
        assert reads.count(INDEX) == 1


# ------------------------------------------------------------------ the agent


async def test_a_task_is_found_by_its_number(autojump_clock):
    async with open_desk(ScriptedModel(["one", "two"])) as desk:
        first, second = await desk.run("1"), await desk.run("2")
        assert (first.number, second.number) == (1, 2)
        assert (await desk.agent.ask(GetTask, "2")).task_id == second.task_id
        assert (await desk.agent.ask(Wait, "#1")).result == "one"
        assert [view.number for view in await desk.agent.ask(ListTasks)] == [1, 2]


async def test_a_number_that_no_task_has_is_answered_with_the_newest(autojump_clock):
    async with open_desk(ScriptedModel(["one"])) as desk:
        with pytest.raises(TaskError, match="there is no task 7; there are no tasks yet"):
            await desk.agent.ask(Cancel, "7", "me")
        await desk.run()
        with pytest.raises(TaskError, match="there is no task 7; the newest is 1"):
            await desk.agent.ask(GetTask, "7")


async def test_a_task_is_cancelled_by_its_number_and_the_answer_names_it(autojump_clock):
    model = ScriptedModel([Hang()])
    async with open_desk(model, limits=TaskLimits()) as desk:
        await desk.submit()
        await trio.sleep(1)
        stopped = await desk.agent.ask(Cancel, "1", "me")
        assert (stopped.number, stopped.doing) == (1, "thinking")


async def test_a_task_keeps_its_number_over_a_restart(autojump_clock):
    async with open_desk(ScriptedModel(["one", Hang()])) as desk:
        await desk.run()
        await desk.submit()
        shelf = desk.shelf
    async with open_desk(ScriptedModel(["two"]), shelf=shelf, limits=TaskLimits()) as desk:
        assert (await desk.agent.ask(Wait, "2")).result == "two"
        assert (await desk.agent.ask(GetTask, "1")).number == 1  # from its log


async def test_the_newest_tasks_come_from_memory_and_from_logs(autojump_clock):
    async with open_desk(ScriptedModel(["one", "two", Hang()])) as desk:
        await desk.run()
        await desk.run()
        await desk.submit()
        shelf = desk.shelf
    async with open_desk(ScriptedModel([Hang()]), shelf=shelf, limits=TaskLimits()) as desk:
        latest = await desk.agent.ask(LatestTasks, 2)
        assert [(view.number, view.result) for view in latest] == [(2, "two"), (3, None)]
        assert await desk.agent.ask(LatestTasks, 2, latest[1].updated_at + 1) == ()


# ------------------------------------------------------------------ without a daemon


def test_the_files_tell_the_same(tmp_path):
    folder = tmp_path / "tasks" / DATE
    folder.mkdir(parents=True)
    event = created()
    (tmp_path / INDEX).write_bytes(index_line(A, DATE) + index_line(event.task_id, DATE))
    (folder / f"{event.task_id}.jsonl").write_bytes(task_lines(event))
    assert read_task(tmp_path, "2").task.task_id == event.task_id
    assert read_task(tmp_path, event.task_id).task is not None
    assert read_numbers(tmp_path, [event.task_id]) == {event.task_id: 2}
    with pytest.raises(TaskError, match="there is no task 3; the newest is 2"):
        read_task(tmp_path, "3")
