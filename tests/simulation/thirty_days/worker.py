"""The model of tasks and of what they look back on; decides by what it is shown, and by the errand's number in that."""

from __future__ import annotations

import re

import trio

from pegasus.models.base import AssistantTurn, ModelError, ModelResponse, ToolCall, Usage, without_request_fences
from tests.pegasus.conversation.test_projection import is_valid
from tests.simulation.thirty_days.agent import PRIVATE

EPISODES = "episodes/2026-03.md"


class Worker:
    """errands: gives the errand of a number. summarise: who answers for the role "compact". learnt: the errands about which it was
    told that memory has what it wrote."""

    name = "openai/gpt-test"

    def __init__(self, send, errands, summarise, wrong):
        self._send, self._errands, self._summarise, self._wrong = send, errands, summarise, wrong
        self.calls = 0
        self.learnt = set()

    async def generate(self, request):
        if request.label.role == "compact":
            return await self._summarise(request)
        tokens = self._send(request, is_main=False) // 4
        self.calls += 1
        request = without_request_fences(request)
        if not is_valid(request.turns):
            self._wrong.append("a task's request is no valid projection")
        number = int(re.search(r"#(\d+)", request.turns[0].text)[1])
        if "A task of yours is finished." in request.system:
            return await self._look_back(request, tokens, number)
        return await self._work(request, tokens, number)

    async def _work(self, request, tokens, number):
        errand = self._errands(number)
        made = [call.name for turn in request.turns if isinstance(turn, AssistantTurn) for call in turn.calls]
        heard = " ".join(turn.text for turn in request.turns[::2])
        answer = re.search(r"the answer is (\w+)", heard)
        if made.count("current_time") < errand.steps:
            await trio.sleep(0.5)
            return self._call(tokens, "current_time")
        if errand.trouble == "asks" and answer is None:
            await trio.sleep(1)
            return self._call(tokens, "ask_user", question=f"#{number} Which colour shall it be?")
        if errand.trouble == "notifies" and "notify" not in made:
            return self._call(tokens, "notify", message=f"#{number} is half done")
        await trio.sleep(errand.takes)
        if errand.trouble == "fails":
            raise ModelError(f"scripted: no way to do #{number}", kind="request")
        colour = f" in {answer[1]}" if answer else ""
        text = f"#{number} the harbour is fine{colour}" + (
            ", and a long story it was" * 12 if errand.trouble == "learns" else ""
        )
        return ModelResponse(text, (), Usage(tokens, 30), "end")

    async def _look_back(self, request, tokens, number):
        await trio.sleep(2)
        results = request.turns[-1].results
        if results and not results[-1].is_error:
            self.learnt.add(number)
        if results or self._errands(number).trouble != "learns":
            return ModelResponse(f"{PRIVATE} that was that", (), Usage(tokens, 10), "end")
        entry = f"## Harbour #{number}\n- Summary: it was fine\n- Lesson: #{number} teaches patience"
        return self._call(tokens, "memory_append", path=EPISODES, entry=entry)

    def _call(self, tokens, name, **arguments):
        calls = (ToolCall(f"call_{self.calls}", name, arguments),)
        return ModelResponse(f"{PRIVATE} one step more", calls, Usage(tokens, 20), "tool_calls")
