"""What is read and written for one chat and one job among many: resuming a conversation, and a tick of the schedule."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import trio

from actors import Child, Inbox, Ref, Restart, open_supervisor
from benchmarks.history import MESSAGES_PER_EXCHANGE, conversation, session_lines
from benchmarks.main_agent_load import read_by_line, seconds_of
from benchmarks.report import Result, compared
from benchmarks.workplace import Workplace
from pegasus.main_agent.session import chat_files, load_session
from pegasus.messages import Address
from pegasus.schedule import ScheduleServices, serve_schedule
from pegasus.schedule.jobs import Job, RunJob
from pegasus.schedule.scheduler import _JobScheduler
from pegasus.schedule.times import Schedule
from pegasus.storage import FileDisk, JournalMessage, run_journal
from pegasus.storage.row_files import ROW_FILES
from pegasus.wire import to_wire

MESSAGES = 2_000
RESUME = 5.0
"""Limit: against reading the file line by line with the json module."""
JOBS = 10_000
QUIET = 2.0
"""Limit: a look at so many jobs of which none is due, against a look at one."""
RUN = 3.0
"""Limit: a run of one among so many jobs, against writing a file of that size durably in place of another."""
CHAT = Address("web", "bench")


def measure(place: Workplace) -> Iterator[Result]:
    rounds = place.rounds(41, 11)
    yield trio.run(_resume, place.folder / "resume", rounds)
    yield from trio.run(_schedule, place.folder / "schedule", rounds)


async def _resume(data: Path, rounds: int) -> Result:
    """Until the session can be thought with: read, checked, made into turns."""
    files = chat_files(CHAT)
    (data / files.folder).mkdir(parents=True)
    exchanges = conversation(MESSAGES + MESSAGES_PER_EXCHANGE - 1)
    (data / files.path).write_bytes(b"".join(session_lines(exchanges)))
    loads: list[float] = []
    floors: list[float] = []
    async with _journal_of(data) as root:
        for _ in range(rounds):
            floors.append(seconds_of(lambda: read_by_line(data / files.path)))
            gc.collect()
            began = time.perf_counter()
            session = await load_session(root.ref("journal"), _now, files)
            loads.append(time.perf_counter() - began)
            if len(session.entries) < MESSAGES or not session.projection.turns:
                raise AssertionError(f"{len(session.entries)} of {MESSAGES} messages were loaded")
    return compared(f"resume a chat of {MESSAGES:,} messages", loads, floors, "json, line by line", RESUME)


async def _schedule(data: Path, rounds: int) -> list[Result]:
    looks: list[list[float]] = [[], []]
    runs: list[float] = []
    floors: list[float] = []
    later = _now() + 10**9
    jobs = [_job(number, later + number) for number in range(JOBS)]
    path, form = ROW_FILES["jobs"]
    content = form.content((job.id, form.text(to_wire(job))) for job in jobs)
    (data / path).parent.mkdir(parents=True)
    (data / path).write_bytes(content)
    async with _journal_of(data) as root:
        journal: Ref[JournalMessage] = root.ref("journal")
        services = ScheduleServices(journal, root.ref("tasks"), root.ref("bus"), _now, Random(0))
        keepers = [_JobScheduler(services), _JobScheduler(services)]
        await keepers[1].load()
        keepers[0]._put(jobs[0])
        keeper = await root.start_child(Child("keeper", serve_schedule, services))
        for number in range(rounds):
            for sample, idle in zip(looks, keepers, strict=True):
                began = time.perf_counter()
                for _ in range(100):
                    await idle._run_due()
                sample.append((time.perf_counter() - began) / 100)
            floors.append(seconds_of(partial(_replace, data / "floor.json", content)))
            began = time.perf_counter()
            await keeper.ask(RunJob, jobs[number].id)
            runs.append(time.perf_counter() - began)
    one, many = looks
    return [
        compared(f"a look at {JOBS:,} jobs, none due", many, one, "at one", QUIET, unit="µs"),
        compared(f"a run of one of {JOBS:,} jobs", runs, floors, "its file written", RUN),
    ]


def _job(number: int, due: int) -> Job:
    schedule = Schedule(cron="0 9 * * 1-5", tz="UTC")
    return Job(id=f"j-{number:05}", schedule=schedule, prompt="stretch", channel="web:bench", next=due)


def _journal_of(data: Path):  # type: ignore[no-untyped-def]
    return open_supervisor([Child("journal", _journal, FileDisk(data), restart=Restart.TEMPORARY)])


def _replace(path: Path, content: bytes) -> None:
    """Write a file, sync it, rename it, sync the folder."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


async def _journal(inbox: Inbox[JournalMessage], disk: FileDisk) -> None:
    await run_journal(inbox, disk, clock=_now)


def _now() -> int:
    return time.time_ns() // 1_000_000
