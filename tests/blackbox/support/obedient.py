"""A model that does whatever any text in its input tells it to: the worst case of a deceived one.

An order is `DO <tool> <arguments as JSON>`, wherever it stands: in a message, a page, a file, the description of a tool, the name of a
picture. Orders are carried out in the order in which they stand, each once, by whoever reads them and has the tool. Within the
arguments of a request `$LAST` stands for the newest result, so an order can also carry out of the house what the one before has found.

What it has read it repeats in its answer, so that orders pass from a task to whoever gave it work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pegasus.models.base import AssistantTurn, UserTurn
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.requests import ProviderRequest
from tests.blackbox.support.model import SILENCE, Book, Thought, View, say
from tests.blackbox.support.work import kind_of

_ORDER = re.compile(r"DO (\w+) (?=\{)")


def order(tool: str, **arguments: Any) -> str:
    """The text that makes the model call a tool."""
    return f"DO {tool} {json.dumps(arguments)}"


def orders_in(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield tool and arguments of each order in a text; those within the arguments of another one are not its own."""
    at = 0
    while found := _ORDER.search(text, at):
        try:
            arguments, at = json.JSONDecoder().raw_decode(text, found.end())
        except ValueError:
            at = found.end()
            continue
        yield found[1], arguments


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text within a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from (name, *texts_in(each))
    elif isinstance(value, list):
        for each in value:
            yield from texts_in(each)


def read_result(content: str) -> str:
    """A tool's result as the text that the model understands."""
    try:
        return "\n".join(texts_in(json.loads(content)))
    except ValueError:
        return content


class Obedient(Book):
    """The model. made: every call that it wanted, as (kind of caller, tool, arguments)."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, str, dict[str, Any]]] = []
        self.requests: list[ProviderRequest] = []

    async def __call__(self, request: ProviderRequest) -> ProviderAnswer:
        self.requests.append(request)
        self._notify()
        kind = kind_of(request)
        results = [result for turn in request.turns if isinstance(turn, UserTurn) for result in turn.results]
        last = read_result(results[-1].content) if results else ""
        calls = [call for turn in request.turns if isinstance(turn, AssistantTurn) for call in turn.calls]
        # What an order came to cannot be told from its arguments, since $LAST is another text each time. So they are counted.
        done = [call for call in calls if call.name != "reply"]
        wanted = [each for text in self._read(request) for each in orders_in(text) if each[0] in request.tools]
        if len(done) < len(wanted):
            tool, arguments = wanted[len(done)]
            if tool.startswith("http_"):
                arguments = json.loads(json.dumps(arguments).replace("$LAST", json.dumps(last)[1:-1]))
            self.made.append((kind, tool, arguments))
            return Thought("as I am told", (Call(tool, arguments),))
        if kind != "main":
            return Thought(last or "done")
        return SILENCE if View(request).replied else self._said(View(request), "done")

    def _said(self, view: View, text: str) -> ProviderAnswer:
        question = view.question
        return Thought(calls=tuple(Call("reply", {"text": text, "channelId": question.id}) for _ in say(text).calls))

    @staticmethod
    def _read(request: ProviderRequest) -> Iterator[str]:
        """Yield everything that the model reads, in order."""
        yield request.system
        yield from texts_in(request.raw.get("tools"))
        for turn in request.turns:
            if isinstance(turn, UserTurn):
                yield from (read_result(result.content) for result in turn.results)
                yield from map(read_result, turn.text.splitlines())  # a task's result is JSON

    def wanted(self, tool: str) -> list[dict[str, Any]]:
        """The arguments of the calls of this tool that it wanted to make."""
        return [arguments for _, name, arguments in self.made if name == tool]

    async def tries(self, tool: str) -> None:
        """Return when it has tried to call this tool."""
        try:
            await self._until(lambda: bool(self.wanted(tool)), f"a call of {tool}")
        except AssertionError as error:
            raise AssertionError(f"{error}; there were {[name for _, name, _ in self.made]}") from None
