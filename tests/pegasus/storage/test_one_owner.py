"""Work that one node does at a time."""

from functools import partial

import pytest
import trio

from actors import Child, open_supervisor
from pegasus.storage import GiveBack, Lease, LeaseLost, LostLease, TakeLease, run_while_owner, until_owned, while_owner


class Keys:
    """A journal of several nodes, as far as it gives leases."""

    def __init__(self):
        self.owner, self.token, self.watched = "", 0, {}

    async def run(self, node, inbox):
        async for message in inbox:
            match message:
                case TakeLease(reply, key) if self.owner in ("", node):
                    self.owner, self.token = node, self.token + 1
                    reply.send(Lease(key, self.token))
                case TakeLease(reply):
                    reply.fail(LeaseLost("another node"))
                case LostLease():
                    self.watched[node] = message.reply
                case GiveBack(lease) if lease.token == self.token:
                    self.owner = ""

    def lose(self):
        """The owner does not renew its lease."""
        self.watched.pop(self.owner).send(None)
        self.owner, self.token = "nobody", self.token + 1


async def test_a_key_is_had_soon_after_a_long_time_in_which_it_was_not(autojump_clock):
    keys = Keys()
    keys.owner = "nobody"
    async with (
        open_supervisor([Child("a", lambda inbox: keys.run("a", inbox))]) as root,
        trio.open_nursery() as nursery,
    ):

        @nursery.start_soon
        async def free():
            await trio.sleep(100.4)
            keys.owner = ""

        assert (await until_owned(root.ref("a"), "tasks/run")).owner == "tasks/run"
        assert trio.current_time() < 101


async def test_one_node_works_and_another_goes_on_when_the_key_is_lost(autojump_clock):
    keys, log = Keys(), []

    async def work(node):
        log.append(f"{node} begins")
        try:
            await trio.sleep_forever()
        finally:
            log.append(f"{node} ends")

    nodes = [Child(name, lambda inbox, name=name: keys.run(name, inbox)) for name in "ab"]
    async with open_supervisor(nodes) as root, trio.open_nursery() as nursery:
        nursery.start_soon(while_owner, root.ref("a"), "schedule", lambda: work("a"))
        await trio.sleep(1)
        nursery.start_soon(while_owner, root.ref("b"), "schedule", lambda: work("b"))
        await trio.sleep(10)
        assert log == ["a begins"]
        keys.lose()
        await trio.sleep(10)
        assert log == ["a begins", "a ends"]
        keys.owner = "b"
        await trio.sleep(1)
        assert log == ["a begins", "a ends", "b begins"]
        nursery.cancel_scope.cancel()


async def test_it_ends_with_the_work(autojump_clock):
    async with open_supervisor([Child("a", lambda inbox: Keys().run("a", inbox))]) as root:
        done = []

        async def work():
            done.append(True)

        await while_owner(root.ref("a"), "schedule", work)
        assert done == [True]


async def test_a_change_that_is_refused_ends_the_work_as_the_news_does_and_an_error_is_an_error(autojump_clock):
    begun, keys = [], Keys()

    async def work():
        begun.append(trio.current_time())
        raise LeaseLost("somebody else") if len(begun) == 1 else ValueError("a defect")

    async with open_supervisor([Child("a", lambda inbox: keys.run("a", inbox))]) as root:
        with pytest.RaisesGroup(ValueError):
            await while_owner(root.ref("a"), "schedule", work)
        assert len(begun) == 2
        await trio.testing.wait_all_tasks_blocked()
        assert keys.owner == "", "it was given back"


async def test_an_actor_takes_its_messages_on_the_node_that_owns_its_key_and_is_stopped_like_any_other(autojump_clock):
    taken, missed, keys = [], [], Keys()

    async def adapter(inbox, lease):
        try:
            async for message in inbox:
                taken.append(message)  # noqa: PERF401
            taken.append("stopped")
        except trio.Cancelled:
            taken.append("lost")
            raise

    keys.owner = "nobody"
    async with open_supervisor([Child("a", lambda inbox: keys.run("a", inbox))]) as root:
        held = partial(run_while_owner, journal=root.ref("a"), key="channel/sms", run=adapter, absent=missed.append)
        ref = await root.start_child(Child("adapter", held))
        for number, change in enumerate(
            (lambda: setattr(keys, "owner", ""), keys.lose, lambda: setattr(keys, "owner", ""))
        ):
            await ref.tell(number)
            await trio.sleep(1)
            change()
            await trio.sleep(1)
        await ref.tell(3)
        await trio.sleep(1)
        await root.stop_child("adapter")
    assert (taken, missed) == ([1, "lost", 3, "stopped"], [0, 2])
