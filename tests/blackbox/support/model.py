"""The model of the tests: a book that says what to think about which message, played by the provider-shaped server.

The book is stateless: which thought is due is read from the request alone. So a daemon may be killed at any moment, and the
model goes on where the conversation stands, as a real one would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from pegasus.models.base import AssistantTurn, ToolCall, Turn, UserTurn
from pegasus.testing.provider import ProviderServer
from pegasus.testing.provider.answers import Call, ProviderAnswer, hang
from pegasus.testing.provider.requests import ProviderRequest

TIMEOUT = 20.0
"""Seconds in which the daemon must have asked its model."""

Thought = ProviderAnswer
HANG = hang()
"""The model says nothing until the daemon hangs up."""
HANG_IN_THE_MIDDLE = hang(2)
SILENCE = Thought("nothing needs to be said")
DOCTORS_QUESTION = "Say: ok"
"""The whole conversation of the call by which `doctor` tries a model."""

_METADATA_LINE = re.compile(
    r"^\[channel: (?P<type>[^|\]\n]*) \| id: (?P<id>[^|\]\n]*?)(?: \| thread: (?P<thread>[^|\]\n]*?))?"
    r"(?: \| user: (?P<user>[^|\]\n]*))?\]$",
    re.MULTILINE,
)
_HERE = "channel of the question"


def reply(text: str, channel_id: str | None = None, channel_type: str | None = None, thread: str | None = None) -> Call:
    """A reply call; without a channel, to where the question came from."""
    if channel_id is None:
        return Call("reply", {"text": text, _HERE: True})
    given = {"text": text, "channelId": channel_id, "channelType": channel_type, "replyTo": thread}
    return Call("reply", {key: value for key, value in given.items() if value is not None})


def say(*texts: str) -> ProviderAnswer:
    """A thought that replies with each text, where it was asked."""
    return Thought(calls=tuple(map(reply, texts)))


# ------------------------------------------------------------------ what the model is asked


@attrs.frozen
class Question:
    """The newest message of a user in a request: its metadata line taken apart, and the text below it."""

    type: str
    id: str
    thread: str | None
    text: str
    user: str | None = None


@attrs.frozen(eq=False)
class View:
    """A request, seen from the newest message."""

    request: ProviderRequest

    @property
    def system(self) -> str:
        return self.request.system

    @property
    def tools(self) -> tuple[str, ...]:
        return self.request.tools

    @property
    def body(self) -> Mapping[str, Any]:
        """The JSON as it came."""
        return self.request.raw

    @property
    def messages(self) -> list[Any]:
        """The messages as they came."""
        return list(self.body["messages"])

    def said(self, role: str) -> list[str]:
        """The texts of "user" or of "assistant", turn by turn; empty ones left out."""
        kind = UserTurn if role == "user" else AssistantTurn
        return [turn.text for turn in self.request.turns if isinstance(turn, kind) and turn.text]

    @property
    def user(self) -> str:
        """Everything users said, metadata lines included."""
        return "\n\n".join(self.said("user"))

    @property
    def newest(self) -> str:
        """The newest message with its metadata line."""
        text = self.request.turns[self._position].text
        return text[list(_METADATA_LINE.finditer(text))[-1].start() :]

    @property
    def _position(self) -> int:
        turns = self.request.turns
        found = [n for n, turn in enumerate(turns) if isinstance(turn, UserTurn) and _METADATA_LINE.search(turn.text)]
        assert found, f"no metadata line in {self.user!r}"
        return found[-1]

    @property
    def question(self) -> Question:
        text = self.request.turns[self._position].text
        last = list(_METADATA_LINE.finditer(text))[-1]
        return Question(last["type"], last["id"], last["thread"], text[last.end() + 1 :], last["user"])

    @property
    def _since(self) -> Sequence[Turn]:
        return self.request.turns[self._position + 1 :]

    @property
    def thoughts(self) -> int:
        """How many times the model has thought about the newest message already."""
        return sum(isinstance(turn, AssistantTurn) for turn in self._since)

    @property
    def results(self) -> list[str]:
        """The contents of all tool results that came after the newest message, in order."""
        return [result.content for turn in self._since if isinstance(turn, UserTurn) for result in turn.results]

    def done(self, name: str) -> list[ToolCall]:
        """Calls of this tool, made for the newest message, that were neither refused nor cut short by a crash."""
        turns = self._since
        results = {r.call_id: r for turn in turns if isinstance(turn, UserTurn) for r in turn.results}
        calls = [call for turn in turns if isinstance(turn, AssistantTurn) for call in turn.calls if call.name == name]
        good = [call for call in calls if call.id in results and not results[call.id].is_error]
        return [call for call in good if '"cancelled":true' not in results[call.id].content]

    @property
    def replied(self) -> bool:
        """Whether a reply to the newest message is on its way."""
        return bool(self.done("reply"))


# ------------------------------------------------------------------ what it thinks

Page: TypeAlias = "ProviderAnswer | Callable[[View], ProviderAnswer]"


def echo(view: View) -> ProviderAnswer:
    """Reply `echo: <text>` to whatever is asked, where it was asked, until it is said."""
    return SILENCE if view.replied else say(f"echo: {view.question.text}")


class Book:
    """By a message's text, what to think about it: always the same, or a list for the first, second … thought, then silence.

    otherwise: what to think about a message that is not in the book. asked: every request so far.
    """

    def __init__(self, pages: Mapping[str, Page | Sequence[Page]] | None = None, otherwise: Page = echo) -> None:
        self.pages = dict(pages or {})
        self.otherwise = otherwise
        self.asked: list[View] = []
        self.server: ProviderServer | None = None
        self._changed = trio.Event()
        self._gate: trio.Event | None = None
        self._only: Callable[[View], bool] | None = None
        self._free = 0
        self._held = 0

    async def __call__(self, request: ProviderRequest) -> ProviderAnswer:
        view = View(request)
        if view.user == DOCTORS_QUESTION:
            return Thought("ok")
        self.asked.append(view)
        self._notify()
        await self._pass(view)
        answer = self._look_up(view)
        return answer if isinstance(answer, ProviderAnswer) and not answer.calls else _addressed(answer, view.question)

    def _look_up(self, view: View) -> ProviderAnswer:
        page = self.pages.get(view.question.text, self.otherwise)
        if isinstance(page, list | tuple):
            page = page[view.thoughts] if view.thoughts < len(page) else SILENCE
        return page(view) if callable(page) else page

    def about(self, text: str) -> list[View]:
        """The requests whose newest message has this text."""
        return [view for view in self.asked if view.question.text == text]

    # ------------------------------------------------------------ holding answers back

    def hold(self, after: int = 0, only: Callable[[View], bool] | None = None) -> None:
        """Answer `after` more requests, then none until `release`. only: which requests this is about; None: all."""
        self._gate = trio.Event()
        self._free = after
        self._only = only

    def release(self) -> None:
        """Answer everything that waits, and what comes."""
        if self._gate is not None:
            self._gate.set()
            self._gate = None

    async def _pass(self, view: View) -> None:
        if self._gate is None or (self._only is not None and not self._only(view)):
            return
        if self._free > 0:
            self._free -= 1
            return
        self._held += 1
        self._notify()
        try:
            while self._gate is not None:
                await self._gate.wait()
        finally:
            self._held -= 1

    # ------------------------------------------------------------ waiting for the daemon

    async def waiting(self) -> None:
        """Return when a request is being held."""
        await self._until(lambda: self._gate is not None and self._held > 0, "a request that is held")

    async def reached(self, count: int) -> None:
        """Return when so many requests have come, all in all."""
        await self._until(lambda: len(self.asked) >= count, f"request number {count}, found {len(self.asked)}")

    async def abandoned(self, count: int = 1) -> None:
        """Return when the daemon has hung up on so many answers that were due."""
        assert self.server is not None
        with trio.fail_after(TIMEOUT):
            await self.server.until(lambda server: server.hung_up >= count)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        with trio.move_on_after(TIMEOUT):
            while not condition():
                await self._changed.wait()
            return
        raise AssertionError(f"not within {TIMEOUT:g} s: {what}")

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def _addressed(answer: ProviderAnswer, question: Question) -> ProviderAnswer:
    channel = {"channelId": question.id, "channelType": question.type}
    if question.thread:
        channel["replyTo"] = question.thread
    calls = []
    for call in answer.calls:
        arguments = call.arguments
        if not isinstance(arguments, str) and _HERE in arguments:
            arguments = {key: value for key, value in arguments.items() if key != _HERE} | channel
        calls.append(attrs.evolve(call, arguments=arguments))
    return attrs.evolve(answer, calls=tuple(calls))
