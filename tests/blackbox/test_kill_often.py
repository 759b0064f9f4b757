"""Two hundred messages and a random SIGKILL every few steps: each accepted message is answered exactly once."""

from __future__ import annotations

import random

import pytest
import trio

from tests.blackbox.support import Book, Call, Thought, echo, open_calls, running, serving, until
from tests.blackbox.support.files import session
from tests.blackbox.support.shared_state import IS_SHARED
from tests.blackbox.support.talker import Talker


def curious(view):
    """Like echo, but every fourth message is answered only after a look at the clock, and every seventh with monologue."""
    number = int(view.question.text.rpartition(" ")[2])
    if number % 4 == 0 and view.thoughts == 0:
        return Thought("what time is it?", (Call("current_time"),))
    answer = echo(view)
    return Thought("hm", answer.calls) if number % 7 == 0 else answer


@pytest.mark.deadline(80)
async def test_the_same_while_the_logs_are_being_compacted(tmp_path):
    """Four megabytes of commands, of which almost nothing stays alive: the logs are rewritten again and again."""
    talker = Talker("anna", [f"/help {n} " + "x" * 50_000 for n in range(80)])
    choices = random.Random(3)
    async with running(tmp_path / "home", {"models.default": "offline/stand-in"}) as daemon:
        for _ in range(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_kill_after, daemon, talker, choices.randint(1, 40), choices.random() * 0.01)
                await talker.live(daemon)
                nursery.cancel_scope.cancel()
            if not daemon.alive:
                await daemon.start()
        await talker.live(daemon)
        assert sorted(talker.answers) == list(range(1, 81))
        assert {frame["metadata"]["inReplyTo"] for frame in talker.answers.values()} == set(talker.texts)
        async with daemon.client("web", "anna") as client:
            for n in (0, 40, 79):
                await client.say(talker.texts[f"anna-{n}"], id=f"anna-{n}")
            await client.say("/help")
            assert (await client.reply())["seq"] == 81
        inbox = daemon.home / "data" / "inbox" / "inbox.jsonl"
        if not IS_SHARED:  # a database has no log that grows
            await until(lambda: inbox.stat().st_size < 2_500_000, "a compacted inbox")


async def _kill_after(daemon, talker, steps, pause):
    for _ in range(steps):
        await talker.stepped.wait()
    await trio.sleep(pause)
    daemon.kill()


class Killer:
    """Decides when the daemon dies: after some steps of the talkers, after some model calls, or while it starts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kills = 0

    async def watch(self, daemon, book, talkers) -> None:
        """Return after having killed the daemon once."""
        moment = self.random.choice(["steps", "steps", "asked", "asked", "start"])
        if moment == "steps":
            await self._after_steps(talkers, self.random.randint(1, 25))
        elif moment == "asked":
            await book.reached(len(book.asked) + self.random.randint(1, 8))
        await trio.sleep(self.random.choice([0, 0, 0.001, 0.003, 0.01, 0.05]))
        daemon.kill()
        self.kills += 1

    async def _after_steps(self, talkers, count) -> None:
        for _ in range(count):
            async with trio.open_nursery() as nursery:
                for talker in talkers:
                    nursery.start_soon(self._first, talker, nursery.cancel_scope)

    async def _first(self, talker, scope) -> None:
        await talker.stepped.wait()
        scope.cancel()


@pytest.mark.deadline(80)
@pytest.mark.parametrize("seed", [1, 2])
async def test_each_accepted_message_is_answered_exactly_once(tmp_path, seed):
    talkers = [Talker(name, [f"{name} says {n}" for n in range(50)]) for name in ("anna", "bo")]
    killer = Killer(seed)
    async with serving(tmp_path, book := Book(otherwise=curious)) as daemon:
        while not all(talker.done for talker in talkers):
            async with trio.open_nursery() as nursery:
                if killer.kills < 8:
                    nursery.start_soon(killer.watch, daemon, book, talkers)
                async with trio.open_nursery() as talking:
                    for talker in talkers:
                        talking.start_soon(talker.live, daemon)
                nursery.cancel_scope.cancel()
            if not daemon.alive:
                await daemon.start()
        assert killer.kills >= 6, "the test has become too gentle"
        for talker in talkers:
            talker.assert_answered_exactly_once()
        await daemon.restart()
        async with daemon.client("web", "fence") as client:
            await client.say("fence 1")
            await client.reply()
        await until(lambda: open_calls(session(daemon.home)) == [], "a well-formed session")
