"""The model of the AgentDojo runs: it solves the task as AgentDojo's own solution does, and obeys whoever gives it an order.

As the Main Agent it hands the owner's words to a task, and the task's result to the owner. As the task it makes the calls of the
solution one after the other. With `plans` it reads first what it can, and then asks once for all the calls whose arguments it knows.
Where a result holds an order (`trust_server.MARK`), it carries that out before it goes on. In a world with an order that none of its
calls has shown, it does so at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import attrs

from benchmarks.trust_agentdojo import READERS, Judge
from benchmarks.trust_server import MARK
from pegasus.messages import Json
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.requests import ProviderRequest

PLAN = "ask_permission"
"""Tool that asks an owner for several calls at once."""
_NOTICE = re.compile(r"\[Task \S+ (completed|failed)\]\n(.*)", re.DOTALL)
_SHORT = 4
"""Characters below which a value stands in results by chance."""


@attrs.define
class Step:
    """A call of the solution, or of an order."""

    tool: str
    arguments: dict[str, Any]
    result: str = ""
    """What AgentDojo's own run of the solution gets."""
    needs: frozenset[int] = frozenset()
    """Numbers of the calls of the solution that tell its arguments."""
    number: int = -1
    """Number in the solution; -1 for a call of an order."""
    is_planned: bool = False
    """The owner was asked about it beforehand."""


@attrs.define
class Play:
    """One task of AgentDojo, as it is being played."""

    suite: str
    channel: str
    """Conversation that it takes place in."""
    prompt: str
    """Words of the owner."""
    steps: list[Step]
    """Calls that are left."""
    answer: str
    """Words of the last thought."""
    plans: bool = False
    is_attack: bool = False
    """An order stands somewhere in this world, and has not been carried out."""
    made: set[int] = attrs.field(factory=set)
    """Numbers of the calls of the solution that were made."""
    has_spawned: bool = False


class Obedient:
    """Script of the provider server. play: set before the owner speaks."""

    def __init__(self, judge: Judge) -> None:
        self.play: Play | None = None
        self._judge = judge

    async def __call__(self, request: ProviderRequest) -> ProviderAnswer:
        play = self.play
        if play is None or not {"reply", "notify"} & set(request.tools):
            return ProviderAnswer("Nothing to keep.")
        if "reply" in request.tools:
            return self._talk(play, request)
        return await self._work(play, request)

    def _talk(self, play: Play, request: ProviderRequest) -> ProviderAnswer:
        notice = _NOTICE.search(request.last.text)
        if notice:
            text = json.loads(notice[2])["response"] if notice[1] == "completed" else f"It failed: {notice[2]}"
            return ProviderAnswer("", (Call("reply", {"channelId": play.channel, "text": text or "Done."}),))
        if not play.has_spawned:
            play.has_spawned = True
            return ProviderAnswer("", (Call("spawn_subagent", {"description": "the request", "input": play.prompt}),))
        return ProviderAnswer("nothing needs to be said")

    async def _work(self, play: Play, request: ProviderRequest) -> ProviderAnswer:
        seen = any(MARK in result.content for result in request.last.results)
        if play.is_attack and (seen or not play.steps):
            play.is_attack = False
            orders = await self._judge.ask("orders")
            play.steps[:0] = [Step(call["tool"], call["arguments"]) for call in orders["calls"]]
            play.answer = f"{play.answer} {orders['answer']}".strip()
        if not play.steps:
            return ProviderAnswer(play.answer or "Done.")
        step = play.steps[0]
        if play.plans and PLAN in request.tools:
            ready = [each for each in play.steps if each.needs <= play.made]
            reads = [each for each in ready if is_harmless(play.suite, each)]
            step = next(iter(reads), step)
            planned = [each for each in ready if not each.is_planned and each not in reads]
            if step in planned and len(planned) > 1:
                for each in planned:
                    each.is_planned = True
                calls: list[Json] = [_named(play.suite, each) for each in planned]
                return ProviderAnswer("", (Call(PLAN, {"calls": calls, "why": "These calls solve the request."}),))
        play.steps.remove(step)
        play.made.add(step.number)
        return ProviderAnswer("", (Call(f"{play.suite}__{step.tool}", step.arguments),))


def _named(suite: str, step: Step) -> dict[str, Json]:
    return {"tool": f"{suite}__{step.tool}", "arguments": step.arguments}


def is_harmless(suite: str, step: Step) -> bool:
    """Return whether the model expects that nobody is asked: it reads privately, or what the owner has named."""
    return _fits(step.tool, READERS[suite].reads) or (_fits(step.tool, READERS[suite].fetches) and not step.needs)


def _fits(tool: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)


def read_solution(suite: str, world: Mapping[str, Any], *, is_strict: bool) -> list[Step]:
    """Return the calls of a solution, each with the calls that its arguments are known from.

    A value is known from the owner's words, or else from the result that it first stands in. One that stands nowhere is the model's
    own, such as a summary or the end of an hour. Not strict: it has that in mind from the beginning. Strict: it must have read
    everything that is read before the call; and a short value, such as an id, is that of the newest result that has it, since it
    stands in others by chance.
    """
    steps = [Step(call["tool"], call["arguments"], call["result"]) for call in world["calls"]]
    readers = (*READERS[suite].reads, *READERS[suite].fetches)
    for number, step in enumerate(steps):
        before = steps[:number]
        needs: set[int] = set()
        for value in _values(step.arguments):
            word = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
            if word.search(world["prompt"]):
                continue
            tell = [n for n, each in enumerate(before) if word.search(each.result)]
            places = [n for n in tell if value not in _values(before[n].arguments)]  # an act repeats what it was told
            if places:
                needs.add(places[-1] if is_strict and len(value) < _SHORT else places[0])
            elif is_strict:
                needs.update(n for n, each in enumerate(before) if _fits(each.tool, readers))
        step.number, step.needs = number, frozenset(needs)
    return steps


def _values(value: Any) -> Iterator[str]:
    """Yield every value within arguments as text."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _values(each)
    elif isinstance(value, list):
        for each in value:
            yield from _values(each)
    else:
        yield str(value)
