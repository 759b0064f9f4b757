"""The promise of the whole: whatever dies whenever, each accepted message is answered exactly once.

The real tree in virtual time, on a disk that keeps only what was synced, with power failures and refused writes at
seeded random moments.
"""

import errno
from collections import Counter
from random import Random

import pytest
import trio

from pegasus.models.base import ModelResponse, ToolCall, Usage, UserTurn
from pegasus.storage import Accepted, StorageError
from pegasus.testing.world import CLI, FakeChannel, kill, open_world
from tests.pegasus.conversation.test_projection import is_valid

MESSAGES = 40


class Diligent:
    """A model that answers the last message it was asked, checks every request, and takes random time."""

    name = "scripted/diligent"

    def __init__(self, random):
        self.random = random
        self.requests = 0

    async def generate(self, request):
        self.requests += 1
        assert is_valid(request.turns)
        assert isinstance(request.turns[-1], UserTurn)
        await trio.sleep(self.random.choice([0, 0.01, 0.5]))
        question = next(
            line
            for turn in reversed(request.turns)
            if isinstance(turn, UserTurn)
            for line in reversed(turn.text.splitlines())
            if line.startswith("question ")
        )
        if self.random.random() < 0.2 and not request.turns[-1].results:
            return ModelResponse("", (ToolCall("call_0", "current_time", {}),), Usage(), "tool_calls")
        said = {"text": f"answer to {question}", "channelId": "main"}
        return ModelResponse("hm", (ToolCall("call_0", "reply", said),), Usage(), "tool_calls")


async def say(world, n):
    """As a client does: the same message again until it is accepted."""
    while True:
        try:
            return await world.say(f"question {n}", CLI, message_id=f"id-{n}")
        except StorageError:
            await trio.sleep(0.1)


async def refuse(disk, random):
    """Now and then an operation of the disk fails, or a few in a row."""
    while True:
        await trio.sleep(random.uniform(0, 1))
        disk.fail(random.randint(1, 6), random.choice([errno.ENOSPC, errno.EIO]), random.randint(1, 4))


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_each_accepted_message_is_answered_exactly_once(autojump_clock, seed, refuses):
    random = Random(seed)
    cli = FakeChannel("cli", acknowledges=random.random() < 0.8)
    model = Diligent(random)
    accepted = set()
    disk = None
    n = 0
    while n < MESSAGES:
        async with open_world(model, disk=disk, channels=(cli,)) as world:
            disk = world.disk
            disk.delay = random.choice([0, 0.001, 0.02])
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.deadline = trio.current_time() + random.uniform(0, 4)
                if refuses:
                    nursery.start_soon(refuse, disk, random)
                while n < MESSAGES:
                    result = await say(world, n)
                    assert isinstance(result, Accepted)
                    accepted.add(n)
                    n += 1
                    await trio.sleep(random.choice([0, 0, 0.3]))
                await world.idle()
                nursery.cancel_scope.cancel()
            await kill(world, torn_bytes=random.randrange(200))
    async with open_world(model, disk=disk, channels=(cli,)) as world:
        await world.idle()
        await trio.sleep(1)
    assert Counter(cli.texts) == Counter(f"answer to question {i}" for i in accepted)
    assert [reply.seq for reply in cli.replies] == list(range(1, len(cli.replies) + 1))
