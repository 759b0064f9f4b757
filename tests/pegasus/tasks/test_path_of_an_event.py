"""Bus, persister and journal together: every published event is in a log that survives a power failure at that moment, once."""

from functools import partial
from random import Random

import pytest
import trio

from actors import Backoff, Child, Intensity, Mailbox, Restart, Strategy, open_supervisor
from pegasus.events import Deliver, Subscribe, event_bus
from pegasus.storage import run_journal
from pegasus.tasks.core.task_events import TaskCreated, TaskNotify
from pegasus.tasks.log.format import task_path
from pegasus.tasks.log.persister import task_persister
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.testing.memory_disk import MemoryDisk
from tests.pegasus.tasks.lives import BEGAN, said, task_lines

DATE = "2026-02-25"
TASKS = [f"t{n}" for n in range(7)]


def emitted(count, random):
    """Notifications of several tasks, mixed; the number is in the text."""
    first = [said(TaskCreated(input_text="x"), task_id=task, priority=0) for task in TASKS]
    rest = [said(TaskNotify(str(n)), BEGAN + n, random.choice(TASKS)) for n in range(count)]
    return first, rest


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_published_survives(autojump_clock, seed):
    random = Random(seed)
    disk = MemoryDisk(delay=random.choice([0, 0.01, 0.3]))
    got = []

    async def witness(inbox):
        async for message in inbox:
            assert isinstance(message, Deliver)
            for event in message.events:
                assert task_lines(event) in disk.survivor().content(task_path(event.task_id, DATE))
                got.append(event)

    async def live(events):
        """As the actor of a task does."""
        for n, event in enumerate(events):
            await TaskLogs(root.ref("persister"), bus).record((event,))
            if n % 10 == 0:
                await trio.sleep(random.choice([0, 0.1, 5]))
                if random.random() < 0.3:
                    disk.fail(times=4)

    crash = Backoff(first=0.1, limit=0.1, jitter=0)
    first, rest = emitted(400, random)
    lives = {task: [event for event in (*first, *rest) if event.task_id == task] for task in TASKS}
    tree = [Child("journal", partial(run_journal, clock=lambda: BEGAN), disk, restart=Restart.TEMPORARY)]
    async with open_supervisor(tree, strategy=Strategy.ONE_FOR_ONE, intensity=Intensity(50, 1000)) as root:
        persister = Child("persister", fragile, random, root.ref("journal"), backoff=crash, mailbox=Mailbox(64))
        await root.start_child(persister)
        bus = await root.start_child(Child("bus", event_bus, mailbox=Mailbox(1024)))
        ref = await root.start_child(Child("witness", witness, mailbox=Mailbox(1024)))
        await bus.ask(Subscribe, ref, None, True)
        with trio.fail_after(10_000):
            async with trio.open_nursery() as nursery:
                for events in lives.values():
                    nursery.start_soon(live, events)
        await trio.sleep(10)
    assert sorted(map(id, got)) == sorted(map(id, (*first, *rest)))
    for task, events in lives.items():
        assert [event for event in got if event.task_id == task] == events
        assert disk.survivor().content(task_path(task, DATE)) == b"".join(map(task_lines, events))


async def fragile(inbox, random, journal_ref):
    """A persister that dies now and then in the middle of its work, also between the write and the answer."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task_persister, inbox, journal_ref, lambda: BEGAN)
        if inbox.attempt < 8:
            await trio.sleep(random.uniform(0.01, 3))
            raise RuntimeError("died")
