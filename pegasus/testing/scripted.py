"""`LanguageModel` that answers as a test's script says, in virtual time.

    model = ScriptedModel(["first answer", After(2.0, say("second", call("reply", "c1", text="hi"))), Hang()])
    model = ScriptedModel(lambda request: f"{len(request.turns)} turns")
    …
    assert model.requests[0].turns[-1].text == "hello"

It takes the place of the model client, above HTTP, retries and fallback. Tests of the agent use it: they need a
model whose answers, delays and errors are exact, and they need to see each request. The HTTP side is tested
with `provider`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import attrs
import trio

from pegasus.messages import Json
from pegasus.models import (
    ModelError,
    ModelRequest,
    ModelResponse,
    OnPieces,
    StreamPiece,
    TextPiece,
    ToolCall,
    Usage,
    pieces_of,
    without_request_fences,
)

Step: TypeAlias = ModelResponse | BaseException | str
"""An answer, an error to raise, or a text that is the whole answer."""


@attrs.frozen
class Hang:
    """Step that never answers; only cancellation ends the call.

    Example: `ScriptedModel([Hang()])` is a model that somebody must stop with /stop.
    """


@attrs.frozen
class After:
    """Step that takes so many seconds first.

    Example: `After(30.0, say("late"))`, in virtual time.
    """

    seconds: float
    """Delay in seconds of virtual time."""
    step: Step | Hang
    """Step that follows the delay."""


@attrs.frozen
class Streamed:
    """Step that streams these pieces (None retracts them), each after `pause` seconds, and then goes on."""

    pieces: tuple[StreamPiece | str | None, ...]
    """Pieces to stream; a string is a `TextPiece`, None retracts what was streamed so far."""
    step: Step | Hang
    """Final answer. It is not streamed again."""
    pause: float = 0.0
    """Seconds before each piece."""


AnyStep: TypeAlias = Step | Hang | After | Streamed
"""Everything that a script may contain."""
Script: TypeAlias = Iterable[AnyStep] | Callable[[ModelRequest], AnyStep]
"""Steps in order, or a function that is asked for the step of each request."""


def say(text: str = "", *calls: ToolCall, stop_reason: str = "") -> ModelResponse:
    """Return a response with this text and these calls; its usage is 100 tokens in, 20 out."""
    return ModelResponse(text, calls, Usage(100, 20), stop_reason or ("tool_calls" if calls else "end"))


def call(name: str, call_id: str, **arguments: Json) -> ToolCall:
    """Return a tool call; arguments by keyword."""
    return ToolCall(call_id, name, arguments)


def reply(call_id: str, text: str, channel_id: str = "main", **arguments: Json) -> ToolCall:
    """Return a call of the reply tool."""
    return ToolCall(call_id, "reply", {"text": text, "channelId": channel_id, **arguments})


class ScriptedModel:
    """`LanguageModel` with answers from a list or from a function of the request.

    A list has one step for each call; a call after its end fails the test with an AssertionError. delay: seconds before every answer.

    A function has no end and may look at the request, which suits long simulations; it must not wait. It is shown the request without
    the fences around text from outside, as `requests` has them.

    Example::

        model = ScriptedModel([down(), "hello"])
        response = await model.generate(request)  # the first call raises ModelError, the second returns "hello"
        assert model.requests == [request]
    """

    def __init__(self, script: Script, *, name: str = "scripted/test", delay: float = 0.0) -> None:
        self.name = name
        """Name as given."""
        self._next = script if callable(script) else _in_order(iter(script))
        self._delay = delay
        self.requests: list[ModelRequest] = []
        """Every request, in order."""
        self.cancelled = 0
        """Calls that were cancelled before they had answered."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Perform the next step of the script. Raises the error that is in the script.

        A call that is cancelled has used up its step. The answer is streamed in whole pieces, unless
        the step is `Streamed`.
        """
        self.requests.append(request)
        step = self._next(without_request_fences(request))
        try:
            return await self._perform(step, request.on_pieces or _ignore_pieces)
        except trio.Cancelled:
            self.cancelled += 1
            raise

    async def _perform(self, step: AnyStep, on_pieces: OnPieces) -> ModelResponse:
        """Carry out a step, after the delay. A step within `After` or `Streamed` is what the call ends with."""
        await trio.sleep(self._delay)
        is_streamed = isinstance(step, Streamed)
        if isinstance(step, After):
            await trio.sleep(step.seconds)
            step = step.step
        if isinstance(step, Streamed):
            for piece in step.pieces:
                await trio.sleep(step.pause)
                on_pieces([TextPiece(piece) if isinstance(piece, str) else piece])
            step = step.step
        if isinstance(step, Hang):
            await trio.sleep_forever()
        if isinstance(step, BaseException):
            raise step
        response = say(step) if isinstance(step, str) else step
        if not is_streamed and (whole := list(pieces_of(response))):
            on_pieces(whole)
        return response


def _ignore_pieces(pieces: Sequence[StreamPiece | None]) -> None:
    """Drop pieces: the listener where nobody listens."""


def _in_order(steps: Iterator[AnyStep]) -> Callable[[ModelRequest], AnyStep]:
    """Return the function that takes one step after the other."""

    def following(request: ModelRequest) -> AnyStep:
        """Return the next step. Raises AssertionError behind the last one."""
        for step in steps:
            return step
        raise AssertionError("the script is used up, and the model was asked once more")

    return following


def down(kind: str = "network", message: str = "scripted/test: the connection to the provider failed") -> ModelError:
    """Return a ModelError for a script."""
    return ModelError(message, kind=kind)
