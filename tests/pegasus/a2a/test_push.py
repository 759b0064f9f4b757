"""Push notifications in virtual time: targets that are down, slow or gone."""

from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import pytest
import trio

from actors import Child, Mailbox, open_supervisor
from pegasus.a2a.push import MOST_OF_TASK, MOST_TARGETS, PushDeliveries, PushTarget, PushTargets, TooManyTargetsError
from pegasus.a2a.record import record_of
from pegasus.a2a.watch import TaskWatch
from pegasus.events import Event, RecentEvents
from pegasus.tasks import GetEvents
from tests.pegasus.a2a.test_record import ASKED, CREATED, DONE
from tests.pegasus.web.world import Journal

START = 1_772_020_800_000
HOUR = 3600


class World:
    """Deliveries of tasks whose logs a test writes. `post` answers for the targets."""

    def __init__(self):
        self.recent = RecentEvents(1)
        self.targets = PushTargets(self.clock)
        self.logs, self.taken, self.answers, self.revoked = {}, [], {}, set()

    def clock(self):
        return START + int(trio.current_time() * 1000)

    def happens(self, task_id, *happened):
        for kind, payload in happened:
            event = Event(kind, self.clock(), "log", task_id, payload)
            self.logs.setdefault(task_id, []).append(event)
            self.recent.add(event)

    async def run(self, deliveries):
        """The actor, started again whenever a test ends it."""
        while True:
            with trio.CancelScope() as self.current:
                await deliveries.run()

    async def tasks(self, inbox):
        async for message in inbox:
            assert isinstance(message, GetEvents)
            message.reply.send(tuple(self.logs.get(message.task_id, ())))

    async def post(self, url, headers, body):
        self.taken.append((url, trio.current_time()))
        return await self.answers[url]()

    async def counts(self, token):
        return token not in self.revoked

    def times(self, url):
        return [at for found, at in self.taken if found == url]


@asynccontextmanager
async def open_world():
    world, journal = World(), Journal()
    children = [Child("journal", journal.run, mailbox=Mailbox(1024)), Child("tasks", world.tasks)]
    async with open_supervisor(children) as supervisor:
        await world.targets.open(supervisor.ref("journal"))

        async def read(task_id):
            return record_of(task_id, await supervisor.ref("tasks").ask(GetEvents, task_id))

        watch = TaskWatch(world.recent, read)
        parts = (world.targets, watch, supervisor.ref("tasks"), world.post, world.counts, world.clock, Random(1))
        deliveries = PushDeliveries(*parts)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            nursery.start_soon(world.run, deliveries)
            yield world
            nursery.cancel_scope.cancel()


async def ok():
    return 200


async def test_a_target_that_answers_after_an_hour_or_never_holds_up_no_other(autojump_clock):
    async def after_an_hour():
        await trio.sleep(HOUR)
        return 200

    async def down():
        raise OSError("connection refused")

    async with open_world() as world:
        world.answers = {"slow": after_an_hour, "down": down, "good": ok}
        world.happens("t", CREATED)
        for url in world.answers:
            await world.targets.put(PushTarget("t", url, url))
        world.happens("t", ASKED)
        await trio.sleep(10)
        assert len(world.times("good")) == 1
        await trio.sleep(HOUR)
        # An answer that comes after its time counts for nothing; each attempt ends after 30 s.
        assert 5 < len(world.times("slow")) < 40
        assert all(later - earlier >= 30 for earlier, later in pairwise(world.times("slow")))
        world.answers = dict.fromkeys(world.answers, ok)
        await trio.sleep(400)
        assert {target.url: target.sent for target in world.targets.all} == {"slow": 1, "down": 1, "good": 1}


async def test_slow_targets_of_one_client_hold_up_no_other_client(autojump_clock):
    async with open_world() as world:
        world.answers = {"slow": trio.sleep_forever, "good": ok}
        for task in "abcd":
            world.happens(task, CREATED)
            for n in range(MOST_OF_TASK):
                await world.targets.put(PushTarget(task, f"p{n}", "slow", "one"))
            world.happens(task, ASKED)
        await trio.sleep(1)
        world.happens("t", CREATED, ASKED)
        await world.targets.put(PushTarget("t", "p", "good", "two"))
        await trio.sleep(1)
        assert len(world.times("good")) == 1


async def test_a_target_gets_nothing_after_its_token_was_revoked(autojump_clock):
    async with open_world() as world:
        world.answers = {"one": ok, "two": ok}
        world.happens("t", CREATED)
        for name in world.answers:
            await world.targets.put(PushTarget("t", name, name, name))
        world.revoked.add("one")
        world.happens("t", ASKED)
        await trio.sleep(1)
        assert [url for url, _ in world.taken] == ["two"]
        assert [target.id for target in world.targets.all] == ["two"]


async def test_deliveries_go_on_when_their_actor_was_restarted(autojump_clock):
    async with open_world() as world:
        world.answers = {"good": ok}
        world.happens("t", CREATED)
        await world.targets.put(PushTarget("t", "p", "good"))
        await trio.sleep(1)
        world.current.cancel()
        await trio.sleep(1)
        world.happens("t", ASKED)
        await trio.sleep(1)
        assert len(world.times("good")) == 1


async def test_a_delivery_is_given_up_after_three_days(autojump_clock):
    async def down():
        return 500

    async with open_world() as world:
        world.answers = {"down": down}
        world.happens("t", CREATED)
        await world.targets.put(PushTarget("t", "p", "down"))
        world.happens("t", ASKED)
        await trio.sleep(71 * HOUR)
        assert world.targets.all
        await trio.sleep(2 * HOUR)
        assert not world.targets.all


async def test_targets_go_when_their_task_is_over_or_was_never_begun(autojump_clock):
    async with open_world() as world:
        world.answers = {"good": ok}
        await world.targets.put(PushTarget("never", "p", "good"))
        await world.targets.put(PushTarget("t", "p", "good"))
        await trio.sleep(1)
        world.happens("t", CREATED, DONE)  # kept before the task is begun, as a message with a target is
        await trio.sleep(200)
        assert len(world.times("good")) == 2
        assert not world.targets.all
        await world.targets.put(PushTarget("t", "late", "good", sent=2))  # its client may look at it
        await trio.sleep(200)
        assert [target.id for target in world.targets.all] == ["late"]


async def test_there_is_an_end_of_targets_and_those_that_are_done_make_room(autojump_clock):
    async with open_world() as world:
        world.answers = {"good": ok}
        world.happens("t", CREATED)
        for n in range(MOST_OF_TASK):
            await world.targets.put(PushTarget("t", str(n), "good"))
        with pytest.raises(TooManyTargetsError, match=str(MOST_OF_TASK)):
            await world.targets.put(PushTarget("t", "one more", "good"))
        await world.targets.put(PushTarget("t", "0", "elsewhere"))  # in place of another
        world.targets._store.rows.update(
            {f"x{n}/p": PushTarget(f"x{n}", "p", "good") for n in range(MOST_TARGETS - MOST_OF_TASK)}
        )
        world.targets.note_finished("x7/p")
        await world.targets.put(PushTarget("u", "p", "good"))
        assert "x7/p" not in {target.key for target in world.targets.all}
