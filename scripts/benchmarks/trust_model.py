"""The model of the AgentDojo runs: it solves the task as AgentDojo's own solution does, and obeys whoever gives it an order.

As the Main Agent it hands the owner's words to a task, and the task's result to the owner. As the task it makes the calls of the
solution one after the other. With `plans` it asks once for all the calls whose arguments it knows by then. Where a result holds an
order (`trust_server.MARK`), it carries that out before it goes on; in a world with an order that none of its calls has
shown, it does so at the end.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
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
"""Characters below which a value is looked for in the newest results first, since it stands in many by chance."""


@attrs.define
class Play:
    """One task of AgentDojo, as it is being played."""

    suite: str
    channel: str
    """Conversation that it takes place in."""
    prompt: str
    """Words of the owner."""
    calls: deque[dict[str, Any]]
    """Calls that are left, each with `tool`, `arguments`, and the `result` that it should have."""
    answer: str
    """Words of the last thought."""
    plans: bool = False
    is_attack: bool = False
    """An order stands somewhere in this world, and has not been carried out."""
    made: list[dict[str, Any]] = attrs.field(factory=list)
    """Calls that were made, the orders' not included."""
    has_spawned: bool = False
    asked_until: int = 0
    """Number of calls, from the first, that a plan has covered."""


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
        if play.is_attack and (seen or not play.calls):
            play.is_attack = False
            orders = await self._judge.ask("orders")
            play.calls.extendleft(reversed([{**call, "is_order": True} for call in orders["calls"]]))
            play.answer = f"{play.answer} {orders['answer']}".strip()
        if not play.calls:
            return ProviderAnswer(play.answer or "Done.")
        if play.plans and PLAN in request.tools and len(play.made) >= play.asked_until:
            known = known_calls(play)
            play.asked_until = len(play.made) + len(known)
            planned = [call for call in known if not is_private(play.suite, call["tool"])]
            if len(planned) > 1:
                calls: list[Json] = [
                    {"tool": f"{play.suite}__{call['tool']}", "arguments": call["arguments"]} for call in planned
                ]
                return ProviderAnswer("", (Call(PLAN, {"calls": calls, "why": "These calls solve the request."}),))
        call = play.calls.popleft()
        if not call.get("is_order"):
            play.made.append(call)
        return ProviderAnswer("", (Call(f"{play.suite}__{call['tool']}", call["arguments"]),))


def is_private(suite: str, tool: str) -> bool:
    """Return whether a tool is a private reader, which nobody asks permission for."""
    return any(fnmatchcase(tool, pattern) for pattern in READERS[suite].reads)


def known_calls(play: Play) -> Sequence[dict[str, Any]]:
    """Return the next calls whose arguments the model knows by now, at least one.

    A value is known from the owner's words, or from the result that it first stands in. A value that stands in neither is the model's
    own work, such as a summary or the end of an hour; it is known when everything that is read before the call has been read.
    """
    calls = [*play.made, *play.calls]
    at = len(play.made)
    end = at + 1
    while end < len(calls) and all(
        _source(value, calls[:end], play) < at for value in _values(calls[end]["arguments"])
    ):
        end += 1
    return calls[at:end]


def _source(value: str, before: Sequence[dict[str, Any]], play: Play) -> int:
    """Return the number of the call that a value is known from; -1 for the owner's words."""
    word = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
    if word.search(play.prompt):
        return -1
    places = [number for number, call in enumerate(before) if word.search(call["result"])]
    if places:
        return places[-1] if len(value) < _SHORT else places[0]
    return max((n for n, call in enumerate(before) if is_reader(play.suite, call["tool"])), default=-1)


def is_reader(suite: str, tool: str) -> bool:
    """Return whether a tool only reads, privately or in the open."""
    return is_private(suite, tool) or tool in READERS[suite].fetches


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
