"""Ready-made behaviours of the test provider: what it answers to what it is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pegasus.messages import Json
from pegasus.models import ToolResult
from pegasus.testing.provider_answer import Answer, Call
from pegasus.testing.provider_request import ProviderRequest

Script = Callable[[ProviderRequest], Answer]

_METADATA = re.compile(
    r"^\[channel: (?P<type>[^|\[\]\n]*) \| id: (?P<id>[^|\[\]\n]*?)(?: \| thread: (?P<thread>[^|\[\]\n]*))?"
    r"(?: \| user: [^|\[\]\n]*)?\]$",
    re.MULTILINE,
)
_STEPS: Final = re.compile(r"(\d+) steps")
_LEFT: Final = re.compile(r'"left": ?(\d+)')


def messages_in(text: str) -> Iterator[tuple[dict[str, Json], str]]:
    """The messages of a user turn: what to give back to reply (channelId, channelType, replyTo), and the text."""
    found = list(_METADATA.finditer(text))
    for line, following in zip(found, [*found[1:], None], strict=False):
        end = following.start() if following else len(text)
        channel: dict[str, Json] = {"channelId": line["id"], "channelType": line["type"]}
        if line["thread"]:
            channel["replyTo"] = line["thread"]
        yield channel, text[line.end() : end].strip()


def echo(request: ProviderRequest) -> Answer:
    """Reply `echo: <text>` to each new message, in its channel; a reply that failed or was cancelled, again."""
    calls = [*_again(request)]
    calls += [Call("reply", {"text": f"echo: {text}", **channel}) for channel, text in messages_in(request.last.text)]
    if calls and "reply" not in request.tools:
        return Answer("\n".join(str(_text(call)) for call in calls))
    return Answer("" if calls else "Nothing more to say.", tuple(calls))


def silent(request: ProviderRequest) -> Answer:
    """Think, and say nothing."""
    return Answer("I keep that to myself.")


def time(request: ProviderRequest) -> Answer:
    """Look at the clock first, then reply with what it said."""
    if request.last.text:
        return Answer("The clock will know.", (Call("current_time"),))
    results = [result for result in request.last.results if result.name == "current_time"]
    source = next((found for found in _sources(request)), None)
    if not results or source is None:
        return Answer("", tuple(_again(request))) if [*_again(request)] else Answer("Said.")
    return Answer("", (Call("reply", {"text": f"time: {results[0].content}", **source}),))


def chatty(request: ProviderRequest) -> Answer:
    """Three replies to each new message."""
    calls = [
        Call("reply", {"text": f"{part}: {text}", **channel})
        for channel, text in messages_in(request.last.text)
        for part in ("one", "two", "three")
    ]
    return Answer("I have a lot to say.", (*_again(request), *calls))


def steps(request: ProviderRequest) -> Answer:
    """Call the tool `step` as often as the message says ("3 steps"), each call with what is left; then say so.

    It is a counter of which each result tells the next: {"left": 2}.
    """
    results = [result for result in request.last.results if result.name in ("", "step")]
    found = _LEFT.search(results[-1].content) if results else _STEPS.search(request.last.text)
    if found is None or "step" not in request.tools:
        return Answer("There is nothing to do.")
    left = int(found[1])
    if left == 0:
        return Answer("All steps are done, and this is what came of them.")
    return Answer(f"There are {left} steps left; I take the next one.", (Call("step", {"left": left}),))


def sequence(answers: Iterable[Answer], then: Script = silent) -> Script:
    """These answers in order, one for each request; after them, `then`."""
    left = iter(answers)

    def script(request: ProviderRequest) -> Answer:
        return next(left, None) or then(request)

    return script


def _again(request: ProviderRequest) -> Iterator[Call]:
    for result in request.last.results:
        call = request.calls.get(result.call_id)
        if call is not None and call.name == "reply" and _failed(result):
            yield Call("reply", call.arguments)


def _failed(result: ToolResult) -> bool:
    if result.is_error:
        return True
    try:
        content = json.loads(result.content)
    except ValueError:
        return False
    return isinstance(content, Mapping) and bool(content.get("cancelled") or content.get("error"))


def _sources(request: ProviderRequest) -> Iterator[dict[str, Json]]:
    for turn in reversed(request.turns):
        found = [channel for channel, _ in messages_in(turn.text)]
        yield from reversed(found)


def _text(call: Call) -> Json:
    return call.arguments.get("text") if isinstance(call.arguments, Mapping) else call.arguments


SCRIPTS: Final[Mapping[str, Script]] = {
    "echo": echo,
    "silent": silent,
    "time": time,
    "chatty": chatty,
    "steps": steps,
}
"""By the name `--script` takes."""
