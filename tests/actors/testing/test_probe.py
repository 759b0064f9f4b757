"""The scripted actor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import trio

from actors import ActorDied, ActorError, AskTimeout, Child, Ref, Reply, open_supervisor
from actors.testing import Answers, Crashes, Fails, Hangs, Ignores, Keeps, Probe, ProbeCrash
from tests.actors.kit import Add, Total


@asynccontextmanager
async def started(probe: Probe) -> AsyncIterator[Ref]:
    async with open_supervisor([Child("probe", probe.run, shutdown=0)]) as supervisor:
        yield supervisor.ref("probe")


async def test_it_keeps_what_it_receives() -> None:
    probe = Probe()
    async with started(probe) as ref:
        for message in (Add(1), "any object", Add(2)):
            await ref.tell(message)
        await probe.wait_for(3)
        assert probe.got == [Add(1), "any object", Add(2)]


async def test_it_answers_in_turn_and_then_as_told_for_the_rest() -> None:
    probe = Probe([Answers(1), Answers(2)], then=Answers(0))
    async with started(probe) as ref:
        assert [await ref.ask(Total) for _ in range(4)] == [1, 2, 0, 0]


async def test_it_answers_late() -> None:
    probe = Probe([Answers(1, after=3)])
    async with started(probe) as ref:
        begun = trio.current_time()
        assert await ref.ask(Total) == 1
        assert trio.current_time() == begun + 3


async def test_it_answers_with_an_error() -> None:
    async with started(Probe([Fails(KeyError("x"))])) as ref:
        with pytest.raises(KeyError):
            await ref.ask(Total)


async def test_it_crashes_and_goes_on_with_its_script() -> None:
    probe = Probe([Crashes(), Answers(5)])
    async with started(probe) as ref:
        with pytest.raises(ActorDied) as raised:
            await ref.ask(Total)
        assert isinstance(raised.value.__cause__, ProbeCrash)
        assert await ref.ask(Total) == 5
    assert probe.runs == 2
    assert len(probe.got) == 2


async def test_it_crashes_with_what_it_is_told() -> None:
    async with started(Probe([Crashes(OSError("disk"))])) as ref:
        with pytest.raises(ActorDied, match="disk"):
            await ref.ask(Total)


async def test_it_hangs() -> None:
    async with started(Probe([Hangs(), Answers(1)])) as ref:
        with pytest.raises(AskTimeout):
            await ref.ask(Total, timeout=60)


async def test_what_it_ignores_fails_the_asker_at_once() -> None:
    async with started(Probe([Ignores()])) as ref:
        with trio.fail_after(0.1), pytest.raises(ActorError, match="without an answer"):
            await ref.ask(Total)


async def test_what_it_keeps_is_answered_by_the_test() -> None:
    probe = Probe([Keeps()])
    async with started(probe) as ref:
        answer = await ref.request(Total)
        await probe.wait_for(1)
        probe.replies.pop().send(7)
        assert await answer.get() == 7


async def test_its_script_can_be_continued() -> None:
    probe = Probe()
    async with started(probe) as ref:
        probe.next(Answers("a"), Answers("b"))
        assert [await ref.ask(Total), await ref.ask(Total)] == ["a", "b"]


class Pair(NamedTuple):
    reply: Reply[int]
    label: str


@dataclass
class Plain:
    reply: Reply[int]
    label: str


@pytest.mark.parametrize("kind", [Total, Pair, Plain])
async def test_questions_are_kept_without_their_reply(kind: type) -> None:
    probe = Probe([Ignores()])
    async with started(probe) as ref:
        with pytest.raises(ActorError):
            await ref.ask(kind, "label")
        assert probe.got == [kind(None, "label")]


async def test_a_message_that_asks_nothing_is_just_received() -> None:
    probe = Probe([Answers(1), Fails(KeyError()), Keeps()])
    async with started(probe) as ref:
        for _ in range(3):
            await ref.tell(Add(1))
        await probe.wait_for(3)
    assert probe.runs == 1
    assert probe.replies == []
