"""A LanguageModel that says what a test wants, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import attrs
import trio

from pegasus.messages import Json
from pegasus.models import ModelError, ModelRequest, ModelResponse, ToolCall, Usage

Step: TypeAlias = ModelResponse | BaseException | str
"""An answer, an error to raise, or a text that is the whole answer."""


@attrs.frozen
class Hang:
    """Never answer; only cancelling ends the call."""


@attrs.frozen
class After:
    """Take so many seconds first."""

    seconds: float
    step: Step | Hang


@attrs.frozen
class Told:
    """Tell these pieces to who listens (None: take them back), each after `pause` seconds, then go on."""

    pieces: tuple[str | None, ...]
    step: Step | Hang
    pause: float = 0.0


AnyStep: TypeAlias = Step | Hang | After | Told
Script: TypeAlias = Iterable[AnyStep] | Callable[[ModelRequest], AnyStep]


def say(text: str = "", *calls: ToolCall, stop_reason: str = "") -> ModelResponse:
    """A response with this text and these calls."""
    return ModelResponse(text, calls, Usage(100, 20), stop_reason or ("tool_calls" if calls else "end"))


def call(name: str, call_id: str, **arguments: Json) -> ToolCall:
    """A tool call; arguments by keyword."""
    return ToolCall(call_id, name, arguments)


def reply(call_id: str, text: str, channel_id: str = "main", **arguments: Json) -> ToolCall:
    """A call of the reply tool."""
    return ToolCall(call_id, "reply", {"text": text, "channelId": channel_id, **arguments})


class ScriptedModel:
    """Answers from a list, one step for each call (an AssertionError when it is used up), or by a callable.

    requests: every request, in order. cancelled: calls that were cancelled while they took their time.
    delay: seconds before every answer.
    """

    def __init__(self, script: Script, *, name: str = "scripted/test", delay: float = 0.0) -> None:
        self._name = name
        self._next = script if callable(script) else _in_order(iter(script))
        self._delay = delay
        self.requests: list[ModelRequest] = []
        self.cancelled = 0

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """The next step. Cancelling is counted and passed on."""
        self.requests.append(request)
        step = self._next(request)
        try:
            return await self._perform(step, request.on_text or _nobody)
        except trio.Cancelled:
            self.cancelled += 1
            raise

    async def _perform(self, step: AnyStep, tell: Callable[[str | None], None]) -> ModelResponse:
        await trio.sleep(self._delay)
        told = isinstance(step, Told)
        if isinstance(step, After):
            await trio.sleep(step.seconds)
            step = step.step
        if isinstance(step, Told):
            for piece in step.pieces:
                await trio.sleep(step.pause)
                tell(piece)
            step = step.step
        if isinstance(step, Hang):
            await trio.sleep_forever()
        if isinstance(step, BaseException):
            raise step
        response = say(step) if isinstance(step, str) else step
        if response.text and not told:
            tell(response.text)
        return response


def _nobody(piece: str | None) -> None:
    """Who is told where nobody wants to know."""


def _in_order(steps: Iterator[AnyStep]) -> Callable[[ModelRequest], AnyStep]:
    def following(request: ModelRequest) -> AnyStep:
        for step in steps:
            return step
        raise AssertionError("the script is used up, and the model was asked once more")

    return following


def down(kind: str = "network", message: str = "scripted/test: the connection to the provider failed") -> ModelError:
    """A ModelError to put into a script."""
    return ModelError(message, kind=kind)
