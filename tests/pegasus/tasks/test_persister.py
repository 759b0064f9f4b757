"""The persister on a real journal, on a disk in memory: durable before the answer, grouped, once; and its lists."""

import errno
import json
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors import Child, Mailbox, Restart, open_supervisor
from pegasus.events import Event
from pegasus.storage import StorageError, run_journal
from pegasus.tasks.core.fsm import RESTARTED
from pegasus.tasks.log.format import PendingTask, index_line, pending_content, task_path
from pegasus.tasks.log.persister import FORGET_AFTER, RECENT_MS, RETRY_AFTER, _Store, task_persister
from pegasus.tasks.log.task_logs import Forget, GetPending, ListLogs, ReadLogs, RecordEvents, StoredLog, TaskLogs
from pegasus.testing.memory_disk import MemoryDisk, MemoryFiles
from tests.pegasus.tasks.lives import (
    BEGAN,
    ID,
    E,
    Life,
    created,
    event,
    failed,
    reasoned,
    reflected,
    resumed,
    task_lines,
    told,
    tool_done,
)

DATE = "2026-02-25"
LOG = task_path(ID, DATE)
INDEX, PENDING = "tasks/index.jsonl", "tasks/pending.json"


class Running:
    def __init__(self, root, disk):
        self.root = root
        self.disk = disk
        self.persister = root.ref("persister")
        self.journal = root.ref("journal")
        self.logs = TaskLogs(self.persister, root.ref("bus"))

    async def record(self, *events):
        await self.logs.record(events)

    async def pending(self):
        return [entry.task_id for entry in await self.persister.ask(GetPending)]

    def on_disk(self, path=LOG):
        return self.disk.survivor().content(path)


@asynccontextmanager
async def running(disk, now=BEGAN):
    run = partial(run_journal, clock=lambda: now)
    child = Child("journal", run, disk, restart=Restart.TEMPORARY, mailbox=Mailbox(1024))
    async with open_supervisor([child]) as root:
        await root.start_child(Child("persister", task_persister, root.ref("journal"), lambda: now, shutdown=60))
        yield Running(root, disk)


def of(task_id, made):
    return event(made.type, made.payload, task_id=task_id)


async def test_what_is_answered_is_on_disk(autojump_clock):
    async with running(MemoryDisk(delay=0.1)) as it:
        await it.record(created())
        assert it.on_disk() == task_lines(created())
        assert it.on_disk(INDEX) == index_line(ID, DATE)
        await it.record(told(), reasoned())
        await trio.sleep(1)
        assert json.loads(it.on_disk(PENDING)) == [{"taskId": ID, "ts": BEGAN}]
        assert it.on_disk() == task_lines(created()) + task_lines(told()) + task_lines(reasoned())


@pytest.mark.parametrize("pause", [10, 0.05, 0], ids=["answered", "while the one before is written", "at once"])
async def test_no_power_failure_leaves_a_log_that_nobody_looks_after(pause, autojump_clock):
    """Every log that has a line is in the index, and its task is pending at the next start, also if it has ended."""
    steps = [
        (of("a", created()),),
        (of("b", created()), of("a", reasoned())),
        (of("a", tool_done("x")),),
        (of("c", created()), of("d", created())),
        (of("c", told()), of("d", reasoned()), of("e", created())),
        (of("c", failed()),),
        (of("e", failed()), of("d", tool_done("x"))),
        (of("f", created()), of("f", reasoned()), of("f", failed())),
        (of("d", failed()), of("g", created())),
    ]

    async def answered_by(disk):
        """What was said to be written when the power went off, or at the end."""
        answered = []
        with trio.move_on_after(1000) as scope:
            try:
                async with running(disk) as it:
                    answers = []
                    for step in steps:
                        answers.append((step, await it.persister.request(RecordEvents, step)))
                        if pause:
                            await trio.sleep(pause)
                    for step, answer in answers:
                        await answer.get()
                        answered.extend(step)
                    await wait_all_tasks_blocked()
                    scope.cancel()
            except* Exception:
                pass
        return answered

    def first():
        disk = MemoryDisk(delay=0.1)
        disk.put(PENDING, b"[]")
        return disk

    whole = first()
    assert len(await answered_by(whole)) == sum(map(len, steps))
    for operation in range(1, whole.operations + 1):
        disk = first()
        disk.lose_power(operation)
        answered = await answered_by(disk)
        for torn_bytes in (0, 10**6):
            left = disk.survivor(torn_bytes=torn_bytes)
            begun = [task_id for task_id in "abcdefg" if left.content(task_path(task_id, DATE)).count(b"\n")]
            assert [task_id for task_id in begun if index_line(task_id, DATE) not in left.content(INDEX)] == []
            assert {event.task_id for event in answered} <= set(begun)
            left.delay = 0
            async with running(left) as it:
                assert set(begun) <= set(await it.pending())


async def test_no_power_failure_leaves_a_resumed_task_that_nobody_looks_after(autojump_clock):
    lines = task_lines(created()) + task_lines(failed(RESTARTED))
    for operation in range(1, 20):
        disk = MemoryDisk()
        disk.put(LOG, lines)
        disk.put(INDEX, index_line(ID, DATE))
        disk.put(PENDING, b"[]")
        disk.lose_power(operation)
        answered = False
        with trio.move_on_after(1000) as scope:
            try:
                async with running(disk) as it:
                    await it.record(resumed(Life().live))
                    answered = True
                    scope.cancel()
            except* Exception:
                pass
        left = disk.survivor(torn_bytes=10**6)
        async with running(left) as it:
            if left.content(LOG).count(b"\n") > 2:
                assert await it.pending() == [ID]
            assert left.content(LOG).count(b"\n") > 2 or not answered


async def test_the_list_and_the_index_are_on_disk_before_a_log_begins(autojump_clock, monkeypatch):
    done = []

    def noted(name):
        work = getattr(MemoryFiles, name)

        def note(files, path, *rest):
            done.append((name, path))
            if name == "rename" and len([one for one in done if one[0] == name]) < 3:
                raise OSError(errno.EIO, "the list is refused twice")
            return work(files, path, *rest)

        monkeypatch.setattr(MemoryFiles, name, note)

    for name in ("write", "sync", "rename"):
        noted(name)
    async with running(MemoryDisk()) as it:
        await it.record(created())
        await it.record(failed())
    [begins, _] = [place for place, one in enumerate(done) if one == ("write", LOG)]
    assert done.index(("sync", INDEX)) < begins or done.index(("write", INDEX)) < begins
    listed = [place for place, (name, _) in enumerate(done) if name == "rename"]
    assert listed[2] < begins


async def test_a_step_of_a_task_costs_one_sync(autojump_clock):
    async with running(MemoryDisk()) as it:
        await it.record(created())
        assert json.loads(it.on_disk(PENDING)) == [{"taskId": ID, "ts": BEGAN}]
        for made in (reasoned(), tool_done("x"), failed()):
            before = it.disk.fsyncs
            await it.record(made)
            assert it.disk.fsyncs == before + 1


async def test_many_events_cost_one_write_for_each_file(autojump_clock):
    async with running(MemoryDisk()) as it:
        await it.record(created())
        await wait_all_tasks_blocked()
        before = it.disk.fsyncs
        await it.record(*[told(str(n)) for n in range(1000)])
        assert it.disk.fsyncs == before + 1


async def test_many_new_tasks_share_one_replacement_of_pending(autojump_clock):
    async with running(MemoryDisk()) as it:
        await it.record(*[of(f"t{n}", created()) for n in range(50)])
        assert it.disk.fsyncs <= 50 + 1 + 2
        assert len(await it.pending()) == 50
        assert await it.persister.ask(ListLogs, DATE) == tuple(f"t{n}" for n in range(50))
        assert await it.persister.ask(ListLogs, "2026-02-26") == ()


async def test_a_disk_that_refuses_is_tried_again_and_nothing_is_answered_before(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as it:
        await it.record(created())
        disk.fail(times=6)
        begun = trio.current_time()
        await it.record(told())
        assert trio.current_time() - begun >= 0.5
        assert it.on_disk() == task_lines(created()) + task_lines(told())


@pytest.mark.parametrize("tasks", ["a", "ab"])
async def test_a_refusal_of_the_disk_is_answered_at_once_and_nothing_is_kept(tasks, autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as it:
        await it.record(*[of(letter * 16, created()) for letter in tasks])
        await wait_all_tasks_blocked()
        paths = [task_path(letter * 16, DATE) for letter in tasks]
        before = [it.on_disk(path) for path in paths]
        disk.fail(times=8)
        with pytest.raises(StorageError), trio.fail_after(0.1):
            await it.persister.ask(RecordEvents, tuple(of(letter * 16, told()) for letter in tasks))
        disk.files.end_faults()
        assert [it.on_disk(path) for path in paths] == before
        await it.record(*(of(letter * 16, told()) for letter in tasks))
        lines = [task_lines(of(letter * 16, told())) for letter in tasks]
        assert [it.on_disk(path) for path in paths] == [old + line for old, line in zip(before, lines, strict=True)]


async def test_however_long_the_disk_refuses_events_are_recorded_in_the_end(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as it, trio.open_nursery() as nursery:
        await it.record(created())
        disk.fail(times=10**6)
        nursery.start_soon(it.record, told())
        await trio.sleep(3600)
        assert it.on_disk() == task_lines(created())
        disk.files.end_faults()
        await trio.sleep(15 + 1)
        assert it.on_disk() == task_lines(created()) + task_lines(told())


async def test_a_log_that_cannot_be_written_holds_up_no_other_task(autojump_clock, monkeypatch):
    write = MemoryFiles.write

    def refuse(files, path, *rest):
        if path == task_path("bad", DATE):
            raise OSError(errno.EISDIR, "a folder is in its place")
        return write(files, path, *rest)

    async with running(MemoryDisk()) as it:
        await it.record(of("bad", created()), of("good", created()))
        monkeypatch.setattr(MemoryFiles, "write", refuse)
        answers = [await it.persister.request(RecordEvents, (of(name, told()),)) for name in ("bad", "good")]
        with pytest.raises(StorageError):
            await answers[0].get()
        await answers[1].get()
        assert it.on_disk(task_path("good", DATE)).endswith(task_lines(of("good", told())))


async def test_records_are_answered_in_order(autojump_clock):
    async with running(MemoryDisk(delay=0.1)) as it:
        answers = [await it.persister.request(RecordEvents, (made,)) for made in (created(), told("1"), told("2"))]
        for answer in answers:
            await answer.get()
        assert it.on_disk() == task_lines(created()) + task_lines(told("1")) + task_lines(told("2"))


async def test_what_is_forgotten_leaves_the_list_soon_and_together(autojump_clock):
    async with running(MemoryDisk()) as it:
        await it.record(*[of(f"t{n}", created()) for n in range(50)])
        before = it.disk.fsyncs
        for n in range(49):
            await it.persister.tell(Forget((f"t{n}",)))
        await trio.sleep(FORGET_AFTER + 0.1)
        assert json.loads(it.on_disk(PENDING)) == [{"taskId": "t49", "ts": BEGAN}]
        assert it.disk.fsyncs <= before + 3
        await it.persister.tell(Forget(("nobody",)))


async def test_a_line_of_a_pending_task_costs_no_read_and_a_forgotten_one_leaves_no_log_in_memory(
    autojump_clock, monkeypatch
):
    stores = []

    class KeptStore(_Store):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            stores.append(self)

    monkeypatch.setattr("pegasus.tasks.log.persister._Store", KeptStore)
    async with running(MemoryDisk()) as it:
        for n in range(200):
            await it.record(of(f"t{n}", created()), of(f"t{n}", failed()))
            before = it.disk.runs
            await it.record(of(f"t{n}", reflected()))
            assert it.disk.runs == before + 1
            await it.persister.tell(Forget((f"t{n}",)))
        await trio.sleep(FORGET_AFTER + 0.1)
        assert stores[0]._logs == {}


async def test_a_list_that_the_disk_refuses_is_written_when_it_takes_it(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as it:
        await it.record(created())
        disk.fail(times=10**6)
        await it.persister.tell(Forget((ID,)))
        await trio.sleep(3600)
        assert json.loads(it.on_disk(PENDING)) == [{"taskId": ID, "ts": BEGAN}]
        disk.files.end_faults()
        await trio.sleep(RETRY_AFTER + 1)
        assert json.loads(it.on_disk(PENDING)) == []


async def test_a_stop_writes_what_was_forgotten(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as it:
        await it.record(created())
        await it.persister.tell(Forget((ID,)))
        await it.persister.ask(GetPending)
    assert json.loads(disk.survivor().content(PENDING)) == []


async def test_a_stop_writes_what_it_was_given(autojump_clock):
    disk = MemoryDisk(delay=1)
    async with running(disk) as it:
        await it.record(created())
        answer = await it.persister.request(RecordEvents, (told(),))
        await trio.sleep(0.1)
        await it.root.stop_child("persister")
        await answer.get()
    assert disk.survivor().content(LOG) == task_lines(created()) + task_lines(told())


async def test_a_resumed_task_is_pending_again(autojump_clock):
    async with running(MemoryDisk()) as it:
        life = Life()
        await it.record(created())
        await it.persister.tell(Forget((ID,)))
        assert await it.pending() == []
        await it.record(resumed(life.live))
        assert await it.pending() == [ID]


async def test_a_torn_end_is_set_aside_before_anything_is_appended(autojump_clock):
    disk = MemoryDisk()
    disk.put(LOG, task_lines(created()) + b'{"ts":1,"event":"TASK_NO')
    disk.put(INDEX, index_line(ID, DATE) + b'{"taskId":"b')
    disk.put(PENDING, pending_content([PendingTask(ID, BEGAN)]))
    async with running(disk) as it:
        await it.record(failed(RESTARTED))
        assert it.on_disk() == task_lines(created()) + task_lines(failed(RESTARTED))
        assert it.on_disk(INDEX) == index_line(ID, DATE) + b"\n"  # the number of the torn line is not given again
        [aside] = [path for path in disk.paths() if path.startswith(f"{LOG}.bad-")]
        assert it.on_disk(aside) == b'{"ts":1,"event":"TASK_NO'


async def test_a_record_given_again_after_a_restart_is_there_once(autojump_clock):
    """The bus asks again when the persister died without an answer; the lines may have been written."""
    disk = MemoryDisk()

    async def frail(inbox, journal_ref, clock):
        if inbox.attempt == 1:
            inbox.started()
            message = await inbox.receive()
            first = Child("inner", task_persister, journal_ref, clock)
            async with open_supervisor([first]) as inner:
                await inner.ref("inner").ask(RecordEvents, message.events)
            raise RuntimeError("died before it could say so")
        await task_persister(inbox, journal_ref, clock)

    run = partial(run_journal, clock=lambda: BEGAN)
    async with open_supervisor([Child("journal", run, disk)]) as root:
        ref = await root.start_child(Child("persister", frail, root.ref("journal"), lambda: BEGAN))
        with pytest.raises(Exception, match="persister"):
            await ref.ask(RecordEvents, (created(), told()))
        await ref.ask(RecordEvents, (created(), told()))
        await ref.ask(RecordEvents, (told("more"),))
    assert disk.content(LOG) == task_lines(created()) + task_lines(told()) + task_lines(told("more"))
    assert disk.content(INDEX) == index_line(ID, DATE)


async def test_a_log_is_found_by_id(autojump_clock):
    disk = MemoryDisk()
    disk.put(INDEX, index_line("old", "2020-01-01"))
    disk.put("tasks/2020-01-01/lost.jsonl", b"lost")
    disk.put("tasks/2020-01-01/old.jsonl", b"old")
    disk.put(PENDING, b"[]")
    async with running(disk) as it:
        await it.record(created())
        asked = ("old", ID, "lost", "nobody", "../x")
        found = [(1, b"old"), (2, task_lines(created())), (0, b""), (0, b""), (0, b"")]
        assert await it.persister.ask(ReadLogs, asked) == tuple(StoredLog(*log) for log in found)
        assert (await it.logs.load(ID)).context.input_text == "find papers"
        assert await it.logs.load("nobody") is None
        assert [view.task_id for view in await it.logs.views_of_day(DATE)] == [ID]


async def test_what_is_written_to_goes_where_the_log_is_on_another_day(autojump_clock):
    disk = MemoryDisk()
    path = task_path(ID, "2020-01-01")
    disk.put(path, task_lines(created()))
    disk.put(INDEX, index_line(ID, "2020-01-01"))
    disk.put(PENDING, b"[]")
    async with running(disk) as it:
        life = Life()
        await it.record(resumed(life.live))
        assert it.on_disk(path).count(b"\n") == 2
        assert it.on_disk(LOG) == b""


# ------------------------------------------------------------------ pending.json in ruins


def logs_of_two(disk, ended):
    """One task that is unfinished, and one that ended."""
    life = Life()
    disk.put(LOG, life.log)
    done = task_path("done", DATE)
    disk.put(done, task_lines(of("done", created())))
    end = event(E.TASK_FAILED, {"error": "x"}, at=ended, task_id="done")
    disk.put(done, disk.content(done) + task_lines(end))
    disk.put(INDEX, index_line(ID, DATE) + index_line("done", DATE))


@pytest.mark.parametrize("content", [b"", b"[{", b'{"version":9}', b"\0" * 100])
async def test_a_list_that_cannot_be_read_is_rebuilt_from_the_logs(autojump_clock, content):
    disk = MemoryDisk()
    logs_of_two(disk, BEGAN)
    if content:
        disk.put(PENDING, content)
    async with running(disk, now=BEGAN + 2 * RECENT_MS) as it:
        assert await it.pending() == [ID]
        await trio.sleep(1)
        assert json.loads(it.on_disk(PENDING)) == [{"taskId": ID, "ts": BEGAN}]


async def test_one_that_ended_just_now_is_told_again_then(autojump_clock):
    disk = MemoryDisk()
    logs_of_two(disk, BEGAN)
    async with running(disk, now=BEGAN + RECENT_MS // 2) as it:
        assert await it.pending() == [ID, "done"]


async def test_a_list_that_can_be_read_is_not_searched_for(autojump_clock):
    disk = MemoryDisk()
    logs_of_two(disk, BEGAN)
    disk.put(PENDING, b"[]")
    async with running(disk) as it:
        assert await it.pending() == []


async def test_a_first_start_has_nothing_pending_and_writes_nothing(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as it:
        assert await it.pending() == []
        await trio.sleep(10)
    assert [path for path in disk.paths() if path.startswith("tasks")] == []


async def test_a_lost_index_hides_no_pending_task(autojump_clock):
    """It was told of, but its failure was never written."""
    disk = MemoryDisk()
    disk.put(LOG, task_lines(created()))
    disk.put(PENDING, pending_content([PendingTask(ID, BEGAN)]))
    async with running(disk) as it:
        assert (await it.logs.load(ID)).task_id == ID
        await it.record(failed(RESTARTED))
        assert it.on_disk() == task_lines(created()) + task_lines(failed(RESTARTED))
        assert it.on_disk(INDEX) == index_line(ID, DATE)


# ------------------------------------------------------------------ files that cannot be read


def unreadable(monkeypatch, *paths):
    """A folder is in the place of these files."""
    read = MemoryFiles.read

    def refuse(files, path, *rest):
        if path in paths:
            raise OSError(errno.EISDIR, "a folder is in its place")
        return read(files, path, *rest)

    monkeypatch.setattr(MemoryFiles, "read", refuse)


@pytest.mark.parametrize("pending", [b"[]", b"[{"], ids=["whole list", "damaged list"])
async def test_an_unreadable_log_of_a_finished_task_does_not_keep_the_task_system_from_starting(
    pending, autojump_clock, monkeypatch
):
    disk = MemoryDisk()
    logs_of_two(disk, BEGAN)
    disk.put(PENDING, pending)
    unreadable(monkeypatch, task_path("done", DATE))
    async with running(disk) as it:
        assert await it.pending() == ([] if pending == b"[]" else [ID])
        await it.record(of("new", created()))
        assert (await it.logs.load("new")).context.input_text == "find papers"
        assert [view.task_id for view in await it.logs.views_of_day(DATE)] == [ID, "new"]


@pytest.mark.parametrize("path", [INDEX, PENDING])
async def test_a_folder_in_place_of_a_list_does_not_keep_the_task_system_from_starting(
    path, autojump_clock, monkeypatch
):
    disk = MemoryDisk()
    logs_of_two(disk, BEGAN)
    disk.put(PENDING, pending_content([PendingTask(ID, BEGAN)]))
    unreadable(monkeypatch, path)
    async with running(disk, now=BEGAN + 2 * RECENT_MS) as it:
        assert await it.pending() == [ID]


# ------------------------------------------------------------------ several logs


@pytest.mark.parametrize("second", range(5, 17))
async def test_of_several_logs_those_that_the_disk_has_taken_are_not_written_again(second, autojump_clock):
    """The sync of two logs together fails, and then something of writing them one by one."""
    disk = MemoryDisk()
    async with running(disk) as it:
        await it.record(of("a" * 16, created()), of("b" * 16, created()))
        paths = [task_path(letter * 16, DATE) for letter in "ab"]
        before = [it.on_disk(path) for path in paths]
        disk.fail(4)
        disk.fail(second)
        await it.record(of("a" * 16, told()), of("b" * 16, told()))
        lines = [task_lines(of(letter * 16, told())) for letter in "ab"]
        assert [it.on_disk(path) for path in paths] == [old + line for old, line in zip(before, lines, strict=True)]


async def test_an_event_that_no_line_was_made_for_is_refused(autojump_clock):
    """It would be answered and never be on disk."""
    async with running(MemoryDisk()) as it:
        with pytest.raises(ValueError, match="has no line"):
            await it.record(Event(E.TASK_NOTIFY, BEGAN, "task", ID, {"message": "x"}))
