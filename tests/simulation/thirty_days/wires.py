"""Every request as both providers would get it: made by the product's own wires, read as strictly as the real ones read it."""

from __future__ import annotations

import attrs

from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.chat import ChatWire
from pegasus.testing.provider.formats import parse
from pegasus.testing.provider.prompt_cache import PromptCache
from pegasus.testing.provider.requests import Invalid

_HEADERS = {"content-type": "application/json"}


@attrs.define
class _Wire:
    """One of the two formats. cache: of the provider; it outlives the process."""

    form: str
    path: str
    wire: object
    cache: PromptCache


class Wires:
    """The connections of one run of the process; `wrong` gets what a provider would refuse.

    per_chat: each chat has a conversation of its own. prompts: of the Main Agent, all runs together. caches: by format.
    """

    per_chat = False

    def __init__(self, wrong):
        self._wrong = wrong
        self.caches = {"anthropic": PromptCache(), "openai": PromptCache()}
        self.prompts = set()
        self.begin()

    def begin(self):
        """A new process: other connections, maybe another prompt."""
        self._heads = {}
        self._wires = [
            _Wire("anthropic", "/v1/messages", AnthropicWire("claude-test"), self.caches["anthropic"]),
            _Wire("openai", "/v1/chat/completions", ChatWire("gpt-test"), self.caches["openai"]),
        ]

    def send(self, request, *, is_main):
        """Check a request; gives its size in bytes."""
        bodies = [one.wire.body(request) for one in self._wires]
        for one, body in zip(self._wires, bodies, strict=True):
            self._check(one, body, request)
            if is_main:
                one.cache.send(body, request.turns[0].text)
        if is_main:
            self._same_head(request)
        return max(map(len, bodies))

    def _check(self, one, body, request):
        try:
            read = parse(one.path, _HEADERS, body)
        except Invalid as error:
            self._wrong.append(f"{one.form} would refuse a request: {error} … {body[-400:]!r}")
            return
        if request.system != read.system:
            self._wrong.append(f"{one.form} got another prompt than was meant")
        if request.tools and tuple(tool.name for tool in request.tools) != read.tools:
            self._wrong.append(f"{one.form} got other tools than were meant: {read.tools}")

    def _conversation(self, request):
        """The conversation that a request belongs to, whose prompt and tools stay the same.

        With one for each chat it is what the chat has had since its session began anew: the prompt names chat and day. Once an owner's
        session has read the words of a guest, its prompt leaves out what only owners are shown.
        """
        is_for_owner = "- Workspace, where tasks work" in request.system
        return (request.label.channel.address, request.turns[0].text, is_for_owner) if self.per_chat else ""

    def _same_head(self, request):
        self.prompts.add(request.system)
        head = (request.system, request.tools)
        conversation, length = self._conversation(request), len(request.turns)
        before, longest = self._heads.get(conversation, (head, 0))
        if self.per_chat and length < longest:  # /new, and again the same job says the first word
            before = head
        self._heads[conversation] = before, length
        if head != before:
            lines = zip(before[0].splitlines(), head[0].splitlines(), strict=False)
            changed = next((pair for pair in lines if pair[0] != pair[1]), "the tools")
            self._wrong.append(f"the prompt or the tools changed while the process ran: {changed}")
