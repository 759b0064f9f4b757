"""kill -9 with tasks in every state, in both modes of recovery; what really happened is counted in a file."""

from __future__ import annotations

import os
import random
import re
from contextlib import AsyncExitStack
from functools import partial

import attrs
import pytest
import trio

from pegasus.testing.provider.answers import Call, refuse
from tests.blackbox.support import serving, until
from tests.blackbox.support.files import session_path
from tests.blackbox.support.talker import Talker
from tests.blackbox.support.work import (
    Effects,
    Office,
    TaskView,
    act,
    answer,
    below,
    events,
    gone,
    idle,
    later,
    log_path,
    logs,
    open_source,
    rest,
    task_id,
    tasks_folder,
    under_way,
)

RESTARTED = "failed: process restarted, task cancelled"
UNKNOWN = "this call was under way when the process stopped; it may or may not have happened"
MANY = 3000
"""Files, which take a while to delete."""


@attrs.frozen
class Case:
    """A task, and what becomes of it when it is killed.

    thoughts: its pages. before, after: what its person hears, as patterns; after: under "resume", under "fail" it is the failure,
    unless the task was over. effects: what has happened, and how often. told: what it is told after its question.
    """

    thoughts: list
    after: str
    before: tuple[str, ...] = ()
    effects: dict[str, int] = attrs.field(factory=dict)
    over: bool = False
    told: str = ""

    def heard(self, mode):
        return (*self.before, self.after if mode == "resume" or self.over else RESTARTED)


def every_state(work, url, told, deleting, killed):
    """Cases by what their tasks are at when they are killed. Nothing that waits for `killed`, and no `sleep`, ends before."""

    def result(view):
        return answer(view.last)

    return {
        "asking": Case(
            [act(Call("ask_user", {"question": "Who?"})), result], "", before=("needs information: .* Who.",)
        ),
        "thinking": Case([later(killed, answer("thought"))], "completed: thought"),
        "thinking about a result": Case(
            [act(work.shell("one")), later(killed, result)], 'completed: {"exitCode":0,.*', effects={"one": 1}
        ),
        "running a command": Case(
            [act(work.shell("two", "sleep 600")), result], f"completed: Error: {UNKNOWN}", effects={"two": 1}
        ),
        "looking at a page": Case([act(Call("http_get", {"url": url})), result], "completed: .*here it is.*"),
        "at the second of three": Case(
            [
                act(work.shell("first"), work.shell("second", "sleep 600"), work.shell("third")),
                lambda view: answer(" / ".join(view.results)),
            ],
            f'completed: {{"exitCode":0.* / Error: {UNKNOWN} / {{"exitCode":0.*',
            effects={"first": 1, "second": 1, "third": 1},
        ),
        "after some news": Case(
            [act(Call("notify", {"message": "half"})), later(killed, answer("whole"))],
            "completed: whole",
            before=("update: half",),
        ),
        "after an answer": Case(
            [act(Call("ask_user", {"question": "Which?"})), later(killed, result)],
            "completed: blue",
            before=("needs information: .* Which.",),
            told="blue",
        ),
        "deleting": Case(
            [later(deleting, act(Call("delete_file", {"path": "old"}))), result], 'completed: .*"deleted":true.*'
        ),
        "done, not told": Case([later(told, answer("told"))], "completed: told", over=True),
        "next in line": Case([later(killed, answer("at last"))], "completed: at last"),
        "waiting in line": Case([answer("waited")], "completed: waited"),
    }


async def test_in_every_state(recovering, name, tmp_path):
    """One kill, eleven tasks: each person gets exactly one outcome, and nothing that was done is done again."""
    work = Effects(tmp_path)
    told, deleting, killed = trio.Event(), trio.Event(), trio.Event()
    async with open_source() as source:
        cases = every_state(work, source.url, told, deleting, killed)
        book = Office({case: one.thoughts for case, one in cases.items()})
        async with recovering.play(book, name) as daemon:
            old = _many_files(daemon.home / "workspace" / "old")
            await _set_the_scene(daemon, book, cases, name, work, source)
            book.hold(only=lambda view: not isinstance(view, TaskView) and '"input":"done, not told"' in view.newest)
            told.set()
            await book.waiting()
            await book.thought("next in line")
            assert events(daemon.home, "waiting in line") == ["TASK_CREATED"]
            processes = below(daemon.pid)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, _kill_when_files_vanish, daemon, old)
                deleting.set()
            assert "TOOL_CALL_COMPLETED" not in events(daemon.home, "deleting")
            await gone(processes)
            assert work.processes() == []
            killed.set()
            source.open.set()
            book.release()
            await daemon.start()
            await idle(daemon)
            for case, one in cases.items():
                if case == "asking":
                    continue
                await _assert_heard(daemon, f"{name}-{case}", one.heard(recovering.mode))
                for effect, times in one.effects.items():
                    happened = 0 if recovering.mode == "fail" and effect == "third" else times
                    assert work.count(effect) == happened, (case, effect)
            await _assert_goes_on_with_an_answer(daemon, name, recovering.mode)
            assert source.requests == (2 if recovering.mode == "resume" else 1)
            assert old.exists() == (recovering.mode == "fail")


async def _set_the_scene(daemon, book, cases, name, work, source):
    """Every task where it is to be killed, but for the one that will kill."""
    async with AsyncExitStack() as stack:
        for case, one in cases.items():
            client = await stack.enter_async_context(daemon.client("web", f"{name}-{case}"))
            await client.say(f"do {case}")
            for expected in one.before:
                assert re.fullmatch(expected, (await client.reply())["text"])
            if one.told:
                await client.say(f"tell {task_id(daemon.home, case)} {one.told}")
        for case, count in {
            "thinking": 1,
            "thinking about a result": 2,
            "after some news": 2,
            "deleting": 1,
        }.items():
            await book.thought(case, count)
        for effect in ("one", "two", "first", "second"):
            await work.happened(effect)
        await until(lambda: source.requests == 1, "a request to the page")
        await until(lambda: events(daemon.home, "waiting in line"), "all tasks")


def _many_files(folder):
    folder.mkdir(parents=True)
    for n in range(MANY):
        (folder / str(n)).touch()
    return folder


def _kill_when_files_vanish(daemon, folder):
    """Looks as often as it can."""
    while daemon.alive:
        if len(os.listdir(folder)) < MANY:
            daemon.kill()


async def _assert_goes_on_with_an_answer(daemon, name, mode):
    """The task that had asked: it waits on, or has failed; either way an answer is all it needs."""
    expected = ["needs information: .* Who.", *([RESTARTED] if mode == "fail" else [])]
    async with daemon.client("web", f"{name}-asking", lastSeq=0) as client:
        await client.replies(len(expected))
        await client.say(f"tell {task_id(daemon.home, 'asking')} me")
        assert (await client.reply())["text"] == "completed: me"
    await rest(daemon)
    await _assert_heard(daemon, f"{name}-asking", [*expected, "completed: me"])


async def _assert_heard(daemon, channel, expected):
    """All that this channel has ever been told."""
    async with daemon.client("web", channel, lastSeq=0) as client:
        texts = [frame["text"] for frame in await client.replies(client.welcome["seq"])]
    assert len(texts) == len(expected), (channel, texts, expected)
    for text, pattern in zip(texts, expected, strict=True):
        assert re.fullmatch(pattern, text, re.DOTALL), (channel, text, pattern)


# ------------------------------------------------------------------ moments that need a scene of their own


async def test_before_the_main_agent_hears_what_its_calls_did(recovering, name):
    """The lines that say so are not durable at once; what was spawned and resumed is not spawned and resumed again."""
    book = Office({"paint": [act(Call("ask_user", {"question": "Which colour?"})), lambda view: answer(view.last)]})
    async with recovering.play(book, name) as daemon:
        async with daemon.client() as client:
            await client.say("do paint")
            await client.reply()
            book.hold_tasks()
            await client.say(f"tell {task_id(daemon.home, 'paint')} blue")
            await book.waiting()
            daemon.kill()
        book.release()
        _lose_the_last_line(session_path(daemon.home), "resumed")
        await daemon.start()
        await rest(daemon)
        outcome = "completed: blue" if recovering.mode == "resume" else RESTARTED
        await _assert_heard(daemon, name, ["needs information: .* Which colour.", outcome])
        assert events(daemon.home, "paint").count("TASK_RESUMED") == 1


def _lose_the_last_line(path, word):
    """As a power failure may leave it; the kill may have come before it anyway."""
    content = path.read_bytes()
    *_, last = content.splitlines(keepends=True)
    if word.encode() in last:
        path.write_bytes(content.removesuffix(last))


async def test_at_the_end(recovering, name):
    """Killed as soon as the last line of its log is there: it is told once, whether the telling had begun or not."""
    book = Office({f"job {n}": answer(f"result {n}") for n in range(5)})
    async with recovering.play(book, name) as daemon:
        async with daemon.client() as client:
            book.hold_tasks()
            await client.say("\n".join(f"do job {n}" for n in range(5)))
            for n in range(5):
                await book.thought(f"job {n}")
            await under_way(daemon.home, *book.jobs)
            logs = list(map(partial(log_path, daemon.home), map(partial(task_id, daemon.home), book.jobs)))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, _kill_when_done, daemon, logs)
                book.release()
        done = {job for job in book.jobs if "STEP_COMPLETED" in events(daemon.home, job)}
        await daemon.start()
        await rest(daemon)
        async with daemon.client(lastSeq=0) as client:
            texts = [frame["text"] for frame in await client.replies(client.welcome["seq"])]
        expected = [f"completed: result {n}" for n in range(5) if recovering.mode == "resume" or f"job {n}" in done]
        assert sorted(texts) == sorted(expected + [RESTARTED] * (5 - len(expected)))


async def test_when_it_has_failed_and_nobody_was_told(recovering, name):
    """The failure is told as it was, once, in either mode, and not written again."""
    book = Office({"hopeless": refuse(400, "no such model")})
    async with recovering.play(book, name) as daemon:
        async with daemon.client() as client:
            book.hold(only=lambda view: not isinstance(view, TaskView) and "no such model" in view.newest)
            await client.say("do hopeless")
            await book.waiting()
            daemon.kill()
        book.release()
        await daemon.start()
        await rest(daemon)
        await _assert_heard(daemon, name, ["failed: .*no such model.*"])
        assert events(daemon.home, "hopeless") == ["TASK_CREATED", "TASK_FAILED"]


def _kill_when_done(daemon, logs):
    while daemon.alive:
        if any(b"TASK_COMPLETED" in log.read_bytes() for log in logs):
            daemon.kill()


async def test_again_and_again_while_it_recovers(recovering, name, tmp_path):
    """At the start, at the first line that the recovery writes, at the first thought after it."""
    work = Effects(tmp_path)
    count = 6
    jobs = {
        f"job {n}": [
            act(work.shell(f"effect{n}", "sleep 600")),
            act(work.shell(f"more{n}", "sleep 0.02")),
            answer("ok"),
        ]
        for n in range(count)
    }
    async with recovering.play(book := Office(jobs), name) as daemon:
        async with daemon.client() as client:
            await client.say("\n".join(f"do {job}" for job in jobs))
            for n in range(count):
                await work.happened(f"effect{n}")
            daemon.kill()
        for moment in (_at_ready, _at_a_line, _at_a_thought if recovering.mode == "resume" else _at_a_line):
            daemon.spawn()
            await moment(daemon, book)
            daemon.kill()
        await until(lambda: work.processes() == [], "the end of what the killed daemons ran")
        await daemon.start()
        await rest(daemon)
        outcome = "completed: ok" if recovering.mode == "resume" else RESTARTED
        await _assert_heard(daemon, name, [outcome] * count)
        for n in range(count):
            assert work.count(f"effect{n}") == 1
            assert work.count(f"more{n}") <= 1
        for job in jobs:
            assert sum(event in ("TASK_FAILED", "TASK_COMPLETED") for event in events(daemon.home, job)) == 1


async def _at_ready(daemon, book):
    await daemon.ready()


async def _at_a_line(daemon, book):
    """Whatever is written first, or nothing for a while, since all is written already."""
    before = _size_of_logs(daemon)
    with trio.move_on_after(2):
        while _size_of_logs(daemon) == before:  # noqa: ASYNC110  a file tells nobody
            await trio.sleep(0.001)


async def _at_a_thought(daemon, book):
    with trio.move_on_after(2):
        await book.thinking_reached(len(book.thinking) + 1)


def _size_of_logs(daemon):
    return sum(path.stat().st_size for path in tasks_folder(daemon.home).glob("*/*.jsonl"))


async def test_while_stop_ends_a_task(recovering, name, tmp_path):
    """/stop is accepted: whatever dies first, the task does not go on, its processes are gone, and its person hears of it."""
    work = Effects(tmp_path)
    book = Office({"dig": [act(work.shell("dug", "trap '' TERM; sleep 600 & sleep 600")), answer("dug it all")]})
    async with recovering.play(book, name) as daemon:
        async with daemon.client() as client:
            await client.say("do dig")
            await work.happened("dug")
            await client.say("/stop")
            daemon.kill()
        await until(lambda: work.processes() == [], "the end of what the killed daemon ran")
        await daemon.start()
        await rest(daemon)
        async with daemon.client(lastSeq=0) as client:
            texts = [frame["text"] for frame in await client.replies(client.welcome["seq"])]
        assert RESTARTED in texts or any(text.startswith("stopped: stopped by the user") for text in texts), texts
        assert "completed: dug it all" not in texts


# ------------------------------------------------------------------ at any moment


class Boss(Talker):
    """Gives out jobs and answers questions, and cannot be shaken off. Its steps are what it hears."""

    def __init__(self, name, jobs):
        super().__init__(name, [f"do {job}" for job in jobs])
        self.jobs = jobs

    @property
    def done(self):
        return len(self.finals) >= len(self.jobs) and self.accepted >= set(self.texts)

    @property
    def heard(self):
        return [frame["text"] for _, frame in sorted(self.answers.items())]

    @property
    def finals(self):
        return [text for text in self.heard if text.startswith(("completed: ", "failed: "))]

    async def _hear_all(self, peer):
        while not self.done:
            frame = await peer.get("accepted", "reply", "error", timeout=60)
            assert frame["type"] != "error", frame
            if frame["type"] == "accepted":
                self.accepted.add(frame["id"])
            else:
                self._hear(frame)
                await self._answer(peer, frame)
                await peer.ack(frame)
            self._step()

    async def _answer(self, peer, frame):
        what, _, question = frame["text"].partition(": ")
        if what == "needs information":
            id = f"{self.name}-answer-{frame['seq']}"
            if id not in self.texts:
                self.texts[id] = f"tell {question.split()[0]} go"
                await peer.post(self.texts[id], id)


def any_job(work, job):
    """Thoughts of a job: one of three kinds, each with effects that are counted under its name."""
    kind = int(job.rpartition("-")[2]) % 3
    once = work.shell(f"{job}/a", "sleep 0.03")
    twice = (work.shell(f"{job}/a"), Call("notify", {"message": f"{job} news"}), work.shell(f"{job}/b", "sleep 0.03"))
    asking = act(Call("ask_user", {"question": "Shall I?"}))
    looking = act(Call("current_time"), Call("list_files", {"path": "."}))
    thoughts = [(act(once), looking), (act(*twice),), (asking, act(once))][kind]
    return [*thoughts, answer(f"{job} is done")]


@pytest.mark.deadline(100)
@pytest.mark.parametrize(("mode", "seed", "kills"), [("resume", 1, 15), ("fail", 2, 3)])
async def test_at_any_moment(tmp_path, mode, seed, kills):
    """Each job is one task with one outcome, whatever is killed when; effects happen once, or not at all and that is said."""
    choices = random.Random(seed)
    work = Effects(tmp_path)
    bosses = [Boss(name, [f"{name}-{n}" for n in range(8)]) for name in ("anna", "bo")]
    book = Office({job: any_job(work, job) for boss in bosses for job in boss.jobs})
    async with serving(tmp_path, book, {"tasks.recovery": mode}) as daemon:
        killed = 0
        for _ in range(kills):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_kill_somewhen, daemon, book, bosses, choices)
                async with trio.open_nursery() as talking:
                    for boss in bosses:
                        talking.start_soon(boss.live, daemon)
                nursery.cancel_scope.cancel()
            if daemon.alive:
                break
            killed += 1
            await daemon.start()
        assert killed > kills // 2, f"only {killed} kills: the test has become too gentle"
        async with trio.open_nursery() as talking:
            for boss in bosses:
                talking.start_soon(boss.live, daemon)
        await rest(daemon)
        assert work.processes() == []
        found = logs(daemon.home)
        for boss in bosses:
            await _assert_one_outcome_each(daemon, boss, found, work, mode)


async def _kill_somewhen(daemon, book, bosses, choices):
    """After a few things that bosses hear, after a few model calls, or after a moment; never so early that nothing gets done."""
    moment = choices.choice(["heard", "asked", "asked", "thought"])
    count = choices.randint(1, 2)
    if moment == "heard":
        boss = choices.choice(bosses)
        for _ in range(count):
            await boss.stepped.wait()
    elif moment == "asked":
        await book.reached(len(book.asked) + count)
    else:
        await book.thinking_reached(len(book.thinking) + count)
    await trio.sleep(choices.choice([0, 0, 0.002, 0.01, 0.03]))
    daemon.kill()


async def _assert_one_outcome_each(daemon, boss, found, work, mode):
    begun = [
        log for log in found.values() if log
    ]  # a kill may leave a log without a line: of a task that nobody was told of
    mine = {log[0]["data"]["inputText"]: log for log in begun if log[0]["data"]["inputText"] in boss.jobs}
    assert sorted(log[0]["data"]["inputText"] for log in begun if log[0]["data"]["inputText"] in boss.jobs) == sorted(
        boss.jobs
    ), "one task for each job"
    finished = [f"completed: {job} is done" for job in boss.jobs]
    if mode == "resume":
        assert sorted(boss.finals) == sorted(finished)
    else:
        assert len(boss.finals) == len(boss.jobs)
        assert all(text == RESTARTED or text in finished for text in boss.finals)
        assert len(set(boss.finals) - {RESTARTED}) == len([text for text in boss.finals if text != RESTARTED])
    news = [text for text in boss.heard if text.startswith("update: ")]
    assert len(news) == len(set(news))
    for job, log in mine.items():
        for effect in "ab":
            assert work.count(f"{job}/{effect}") <= 1, (job, effect)
        assert sum(line["event"] == "TOOL_CALL_COMPLETED" for line in log) <= 3
