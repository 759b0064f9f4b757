"""The model of a life, and its channels: they do what the story says, and remember what they see to be wrong."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from contextlib import suppress

import trio

from actors import ActorError
from pegasus.channels import DeliverReply
from pegasus.models.base import AssistantTurn, ModelError, ModelResponse, ToolCall, Usage, UserTurn
from pegasus.storage import Acknowledge, Connected, Disconnected, Unacknowledged
from tests.pegasus.conversation.test_projection import is_valid
from tests.simulation.story import PLACES, Step, only_speaks


class Script:
    """The model: does the next thought of the plan that is not done, for the message asked last."""

    name = "scripted/whole-tree"

    def __init__(self, life):
        self.life = life
        self.asked = Counter()
        self.errors = Counter()
        self.bugs = Counter()
        self.calls = {}

    async def generate(self, request):
        try:
            assert is_valid(request.turns)
            assert isinstance(request.turns[-1], UserTurn)
            plan, results = self._question(request.turns)
        except (AssertionError, LookupError) as error:
            self.life.wrong.append(f"a request is no valid projection: {error!r} {request.turns}")
            raise
        n = self.asked[plan.number]
        self.asked[plan.number] += 1
        await trio.sleep(plan.takes[n % len(plan.takes)])
        if n in plan.errors:
            self.errors[plan.number] += 1
            raise ModelError("scripted", kind="server")
        if n in plan.bugs:
            self.bugs[plan.number] += 1
            raise RuntimeError("a bug, as scripted")
        for thought in plan.thoughts:
            if missing := _missing(thought, results):
                if only_speaks(missing) and not only_speaks(thought):  # or this would be the last one
                    missing.append(Step("time", "", plan.channel))
                calls = tuple(self._call(f"call_{i}", step, plan) for i, step in enumerate(missing))
                self.calls.setdefault(plan.number, []).extend((call.name, call.arguments) for call in calls)
                return ModelResponse("hm", calls, Usage(), "tool_calls")
        return ModelResponse("", (), Usage(), "end")

    def calls_in_a_row(self, number, tool, same):
        """The most calls of a tool one after the other, for a message. same: only those with the same arguments."""
        runs = itertools.groupby(self.calls.get(number, ()), key=None if same else lambda call: call[0])
        return max((len(made) for _, run in runs if (made := list(run))[0][0] == tool), default=0)

    def _question(self, turns):
        """The plan of the message asked last, and the calls since then with their results."""
        for i in range(len(turns) - 1, -1, -1):
            if isinstance(turns[i], UserTurn) and (numbers := re.findall(r"^#(\d+)$", turns[i].text, re.MULTILINE)):
                after = zip(turns[i + 1 :], turns[i + 2 :], strict=False)
                made = [pair for turn, next in after if isinstance(turn, AssistantTurn) for pair in _pairs(turn, next)]
                return self.life.plans[int(numbers[-1])], made
        raise LookupError("no question")

    def _call(self, call_id, step, plan):
        match step.kind:
            case "time":
                return ToolCall(call_id, "current_time", {})
            case "unknown":
                return ToolCall(call_id, "no_such_tool", {"text": step.text})
            case "nowhere":
                return ToolCall(call_id, "reply", {"text": step.text, "channelId": "nowhere", "channelType": "nobody"})
        known = step.to.address in self.life.known
        to = step.to if known else plan.channel
        return ToolCall(call_id, "reply", {"text": step.text, "channelId": to.channel_id, "channelType": to.type})


def _pairs(turn, following):
    return zip(turn.calls, following.results, strict=True)


def _missing(thought, results):
    """The steps of a thought that no result says are done."""
    left = Counter(call.name for call, result in results if call.name == "current_time" and _done(result))
    done = {call.arguments.get("text") for call, result in results if _done(result)}
    missing = []
    for step in thought:
        if step.kind == "time" and left["current_time"]:
            left["current_time"] -= 1
        elif step.kind == "time" or step.text not in done:
            missing.append(step)
    return missing


def _done(result):
    return '"cancelled":true' not in result.content


class Client:
    """A channel and the people behind it, who outlive every crash.

    One type with one space ("cli") connects for its address, the others for the whole type, as a bridge does.
    seen: the replies by channelId, in order.
    """

    def __init__(self, type, life):
        self.type = type
        self.life = life
        self.space = "main" if type == "cli" else None
        self.every = life.story.acks[type]
        self.forgetful = life.story.forgetful[type]
        self.seen = {place.channel_id: [] for place in PLACES if place.type == type}

    async def run(self, inbox, journal):
        acked = {}
        await journal.tell(Connected(self.type, self.space))
        try:
            await self._catch_up(journal, acked)
            async for message in inbox:
                match message:
                    case DeliverReply(reply) if reply.seq == len(self.seen[reply.channel.channel_id]) + 1:
                        await self._take(reply, journal, acked)
                    case DeliverReply(reply) if reply.seq <= len(self.seen[reply.channel.channel_id]):
                        self._compare(reply)
                    case _:
                        await self._catch_up(journal, acked)
        finally:
            with suppress(ActorError):
                journal.tell_nowait(Disconnected(self.type, self.space))

    async def _catch_up(self, journal, acked):
        after = () if self.forgetful else tuple((space, len(seen)) for space, seen in self.seen.items())
        for reply in await journal.ask(Unacknowledged, self.type, self.space, after):
            seen = self.seen[reply.channel.channel_id]
            if reply.seq <= acked.get(reply.channel.channel_id, 0):
                self.life.wrong.append(f"{reply} was acknowledged and is handed out again")
            if reply.seq <= len(seen):
                self._compare(reply)
            elif reply.seq > len(seen) + 1:
                self.life.wrong.append(f"a gap: {reply} comes after {len(seen)} replies")
            else:
                await self._take(reply, journal, acked)

    async def _take(self, reply, journal, acked):
        self.seen[reply.channel.channel_id].append(reply)
        self.life.note(f"{reply.channel.address} has {reply.seq}: {reply.text[:40]!r}")
        if self.every and reply.seq % self.every == 0:
            await journal.tell(Acknowledge(reply.channel.address, reply.seq))
            acked[reply.channel.channel_id] = reply.seq

    def _compare(self, reply):
        before = self.seen[reply.channel.channel_id][reply.seq - 1]
        if (reply.text, reply.channel.address) != (before.text, before.channel.address):
            self.life.wrong.append(f"seq {reply.seq} meant {before} and now means {reply}")
