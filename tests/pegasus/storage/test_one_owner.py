"""Work that one node does at a time."""

import trio

from actors import Child, open_supervisor
from pegasus.storage import Lease, LeaseLost, LostLease, TakeLease, while_owner


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

    def lose(self):
        """The owner does not renew its lease."""
        self.watched.pop(self.owner).send(None)
        self.owner = ""


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
        keys.owner = "nobody"
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
