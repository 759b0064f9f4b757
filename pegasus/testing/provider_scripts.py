"""Ready-made scripts of the test provider: functions from a request to an answer.

They read the conversation and keep nothing between requests, so that a provider may be restarted in the middle of a test.

A script answers from the request alone. The state that it seems to have (how many steps are left, which reply
must be repeated) is read from the conversation, as a real model would do it. A client that loses a part of the
conversation therefore gets a wrong answer, and the test fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pegasus.messages import Json
from pegasus.models import ToolResult
from pegasus.testing.provider_answer import Call, ProviderAnswer
from pegasus.testing.provider_request import ProviderRequest

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


def time(request: ProviderRequest) -> ProviderAnswer:
    """Call current_time first, then reply with its result.

    It tests the whole round of a tool call: definition, call, result, and a reply that depends on the result.
    """
    if request.last.text:
        return ProviderAnswer("The clock will know.", (Call("current_time"),))
    results = [result for result in request.last.results if result.name == "current_time"]
    source = next((found for found in _channels_newest_first(request)), None)
    if not results or source is None:
        return (
            ProviderAnswer("", tuple(_failed_replies(request)))
            if [*_failed_replies(request)]
            else ProviderAnswer("Said.")
        )
    return ProviderAnswer("", (Call("reply", {"text": f"time: {results[0].content}", **source}),))


def chatty(request: ProviderRequest) -> ProviderAnswer:
    """Send three replies to each new message."""
    calls = [
        Call("reply", {"text": f"{part}: {text}", **channel})
        for channel, text in messages_in(request.last.text)
        for part in ("one", "two", "three")
    ]
    return ProviderAnswer("I have a lot to say.", (*_failed_replies(request), *calls))


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


def _channels_newest_first(request: ProviderRequest) -> Iterator[dict[str, Json]]:
    """Yield the channels of the messages, newest first."""
    for turn in reversed(request.turns):
        found = [channel for channel, _ in messages_in(turn.text)]
        yield from reversed(found)


def _text(call: Call) -> Json:
    """Return the text that a reply has, for a model that has no tool to send it with."""
    return call.arguments.get("text") if isinstance(call.arguments, Mapping) else call.arguments


SCRIPTS: Final[Mapping[str, Script]] = {
    "echo": echo,
    "silent": silent,
    "time": time,
    "chatty": chatty,
    "steps": steps,
}
"""Scripts by their names for `--script`."""
