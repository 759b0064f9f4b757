"""Answers of the test provider, and scripts that make them: functions from a request to an answer.

    ProviderAnswer("Hello", (Call("reply", {"text": "hi"}),), pieces=3)  # streamed in three pieces
    refuse(429, retry_after=2)  # an error status
    cut(ProviderAnswer("Hello"), after=2)  # the connection is closed after two events

An answer is the same for all formats; `anthropic`, `chat` and the others turn it into events. It describes faults too: a
status, a broken connection, silence, an error in the middle of the stream. So one script can test that both clients behave alike in
each of these cases.

A script answers from the request alone. The state that it seems to have (how many steps are left, which reply must be repeated) is
read from the conversation, as a real model would do it. So a provider may be restarted in the middle of a test, and a client that
loses a part of the conversation gets a wrong answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
import trio

from pegasus.messages import Json, Metadata
from pegasus.models import ToolResult, Usage
from pegasus.testing.provider.requests import ProviderRequest

_USAGE = Usage(100, 20)
"""Usage that an answer reports unless a test chooses another; the numbers have no meaning."""


@attrs.frozen
class Call:
    """Tool call in an answer. Arguments as a string are sent as they are, so that they can be malformed. id "": a new one.

    Example::

        Call("reply", {"channelId": "main", "text": "hi"})
        Call("reply", '{"text": "hi')  # cut in the middle, as small models do it
    """

    name: str
    """Name of the tool."""
    arguments: Metadata | str = attrs.field(factory=dict)
    """Arguments, or the text to send in their place."""
    id: str = ""
    """Id of the call; "" for a new one."""


@attrs.frozen
class ProviderAnswer:
    """Answer to one request.

    All fields have defaults, so that a script names only what matters to its test. Where several faults are
    given, the server takes the first of `reset`, `body`, `status`, `stream`, and then those of the answer's events.

    Example::

        ProviderAnswer("Let me see.", (Call("current_time"),), pieces=3)
        ProviderAnswer(status=529, message="Overloaded", retry_after=2.0)  # `refuse` makes these
    """

    text: str = ""
    """Text of the answer; "" for an answer that consists of calls."""
    calls: tuple[Call, ...] = ()
    """Tool calls, after the text."""
    thinking: tuple[Json, ...] = ()
    """Thinking blocks of Anthropic's format."""
    reasoning: str = ""
    """Reasoning in the other formats, before the text."""
    usage: Usage = _USAGE
    """Tokens that the provider claims to have counted."""
    stop_reason: str = ""
    """The API's own word; "" for the one that fits the answer."""
    pieces: int = 1
    """Deltas that each text and the arguments of each call are sent in."""
    status: int = 200
    """HTTP status. Another one than 200 sends `message` as an error instead of an answer."""
    message: str = ""
    """Message of an error status."""
    body: bytes | None = None
    """Body to send as it is, with `status` and `content_type`."""
    content_type: str = "text/event-stream"
    """Content type of `body`."""
    retry_after: float | None = None
    """Seconds for the `Retry-After` header of an error status."""
    stream: tuple[bytes | float, ...] = ()
    """Parts of a stream to send as they are, instead of the answer's own events; a number is a pause in seconds."""
    error: tuple[str, str] | None = None
    """Type and message of an error event after the other events."""
    cut_after: int | None = None
    """Events to send before the connection is closed."""
    hang_after: int | None = None
    """Events to send before silence, until the client hangs up."""
    go_on: trio.Event | None = None
    """Event that ends this silence: the rest is sent."""
    reset: bool = False
    """Reset the connection instead of answering."""
    pause: float = 0.0
    """Seconds before each event."""


def refuse(status: int, message: str = "", *, retry_after: float | None = None) -> ProviderAnswer:
    """Return an error status with the API's own error body."""
    return ProviderAnswer(status=status, message=message or f"refused with {status}", retry_after=retry_after)


def page(
    text: str = "<html><title>Sign in</title><body>Please sign in</body></html>", status: int = 200
) -> ProviderAnswer:
    """Return a web page, as from a wrong address or a captive portal."""
    return ProviderAnswer(status=status, body=text.encode(), content_type="text/html; charset=utf-8")


def cut(answer: ProviderAnswer, after: int) -> ProviderAnswer:
    """Return the answer, with the connection closed after so many events."""
    return attrs.evolve(answer, cut_after=after)


def hang(after: int = 0) -> ProviderAnswer:
    """Return an answer of so many events and then nothing, until the client hangs up."""
    return ProviderAnswer("never ending", hang_after=after)


def reset() -> ProviderAnswer:
    """Return an answer that resets the connection."""
    return ProviderAnswer(reset=True)


def failing(kind: str, message: str = "it broke") -> ProviderAnswer:
    """Return an answer that begins well and then has an error event."""
    return ProviderAnswer("Well, ", error=(kind, message))


# ------------------------------------------------------------------ helpers of both formats

NewId = Callable[[], str]
"""Returns a new unique id for a tool call."""
_ERRORS: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
"""Types of errors by HTTP status, as Anthropic documents them. Others are `api_error` from 500 on."""


def error_body(form: str, status: int, message: str, n: int) -> bytes:
    """Return an error body as the API has it. n: number for the request id."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if form == "anthropic":
        return dump({"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{n}"})
    return dump({"error": {"message": message, "type": kind, "param": None, "code": None}})


def dump(value: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def split(text: str, pieces: int) -> list[str]:
    """Split a text into pieces of equal length."""
    size = max(1, -(-len(text) // max(pieces, 1)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def arguments_text(call: Call) -> str:
    """Return the arguments as JSON text."""
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)


# ------------------------------------------------------------------ scripts

Script = Callable[[ProviderRequest], ProviderAnswer]
"""Function from a request to its answer. It must return at once; `AsyncScript` of `provider` may wait."""

_METADATA = re.compile(
    r"^\[channel: (?P<type>[^|\[\]\n]*) \| id: (?P<id>[^|\[\]\n]*?)(?: \| thread: (?P<thread>[^|\[\]\n]*))?"
    r"(?: \| user: [^|\[\]\n]*)?\]$",
    re.MULTILINE,
)
"""Line that the Main Agent puts in front of each message to name its channel. Brackets, bars and line breaks
cannot occur in the fields, since they are escaped."""
_STEPS: Final = re.compile(r"(\d+) steps")
"""Number of steps in the message that asks for them."""
_LEFT: Final = re.compile(r'"left": ?(\d+)')
"""Number of steps that are left, in a result of the tool `step`."""


def messages_in(text: str) -> Iterator[tuple[dict[str, Json], str]]:
    """Yield the messages of a user turn: arguments for a reply (channelId, channelType, replyTo), and the text."""
    found = list(_METADATA.finditer(text))
    for line, following in zip(found, [*found[1:], None], strict=False):
        end = following.start() if following else len(text)
        channel: dict[str, Json] = {"channelId": line["id"], "channelType": line["type"]}
        if line["thread"]:
            channel["replyTo"] = line["thread"]
        yield channel, text[line.end() : end].strip()


def echo(request: ProviderRequest) -> ProviderAnswer:
    """Reply `echo: <text>` to each new message, in its channel; a reply that failed or was cancelled, again.

    Without a reply tool, as in a task, the same lines are the text of the answer. With nothing to answer it
    ends the turn.
    """
    calls = [*_failed_replies(request)]
    calls += [Call("reply", {"text": f"echo: {text}", **channel}) for channel, text in messages_in(request.last.text)]
    if calls and "reply" not in request.tools:
        return ProviderAnswer("\n".join(str(_text(call)) for call in calls))
    return ProviderAnswer("" if calls else "Nothing more to say.", tuple(calls))


def silent(request: ProviderRequest) -> ProviderAnswer:
    """Think without replying."""
    return ProviderAnswer("I keep that to myself.")


def steps(request: ProviderRequest) -> ProviderAnswer:
    """Call the tool `step` as often as the message says ("3 steps"), each call with what is left; then say so.

    Each result contains the number for the next call: {"left": 2}.
    """
    results = [result for result in request.last.results if result.name in ("", "step")]
    found = _LEFT.search(results[-1].content) if results else _STEPS.search(request.last.text)
    if found is None or "step" not in request.tools:
        return ProviderAnswer("There is nothing to do.")
    left = int(found[1])
    if left == 0:
        return ProviderAnswer("All steps are done, and this is what came of them.")
    return ProviderAnswer(f"There are {left} steps left; I take the next one.", (Call("step", {"left": left}),))


def sequence(answers: Iterable[ProviderAnswer], then: Script = silent) -> Script:
    """Return a script that gives these answers in order, one for each request, and then those of `then`.

    Unlike the other scripts this one has state: it is for tests that do not restart the provider.
    """
    left = iter(answers)

    def script(request: ProviderRequest) -> ProviderAnswer:
        """Return the next answer, or that of `then` when there is none left."""
        return next(left, None) or then(request)

    return script


def _failed_replies(request: ProviderRequest) -> Iterator[Call]:
    """Yield the replies that failed or were cancelled, to be sent again."""
    for result in request.last.results:
        call = request.calls.get(result.call_id)
        if call is not None and call.name == "reply" and _failed(result):
            yield Call("reply", call.arguments)


def _failed(result: ToolResult) -> bool:
    """Return whether a reply has to be sent again: an error, or a result that says it was cancelled."""
    if result.is_error:
        return True
    try:
        content = json.loads(result.content)
    except ValueError:
        return False
    return isinstance(content, Mapping) and bool(content.get("cancelled") or content.get("error"))


def _text(call: Call) -> Json:
    """Return the text that a reply has, for a model that has no tool to send it with."""
    return call.arguments.get("text") if isinstance(call.arguments, Mapping) else call.arguments


SCRIPTS: Final[Mapping[str, Script]] = {"echo": echo, "silent": silent, "steps": steps}
"""Scripts by their names for `--script`."""
