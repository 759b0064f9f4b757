"""Every request as both providers would get it: made by the product's own wires, read as strictly as the real ones read it."""

from __future__ import annotations

from collections import Counter

import attrs

from pegasus.models.anthropic import AnthropicWire
from pegasus.models.openai import ChatWire
from pegasus.testing.provider_request import Invalid, parse

_MARKER = b',"cache_control":{"type":"ephemeral"}'
_HEADERS = {"content-type": "application/json"}


@attrs.define
class _Wire:
    """One of the two formats. before: the last body of the Main Agent, without cache markers."""

    form: str
    path: str
    wire: object
    before: bytes = b""


class Wires:
    """The connections of one run of the process; `wrong` gets what a provider would refuse.

    sent, cached: bytes of prompts, and those of them that stood the same at the beginning of the prompt before; fresh: prompts
    that began a session, for which there is nothing in a cache, and which are not counted.
    """

    def __init__(self, wrong):
        self._wrong = wrong
        self._wires = []
        self._head = None
        self._opening = None
        self.sent, self.cached, self.fresh = Counter(), Counter(), 0
        self.begin()

    def begin(self):
        """A new process: other connections, maybe another prompt. What the provider has cached stays."""
        befores = [one.before for one in self._wires] or [b"", b""]
        self._head = None
        self._wires = [
            _Wire("anthropic", "/v1/messages", AnthropicWire("claude-test"), befores[0]),
            _Wire("openai", "/v1/chat/completions", ChatWire("gpt-test"), befores[1]),
        ]

    def send(self, request, *, is_main):
        """Check a request; gives its size in bytes."""
        size = 0
        new = is_main and self._is_new(request)
        self.fresh += new
        for one in self._wires:
            body = one.wire.body(request)
            size = max(size, len(body))
            self._check(one, body, request)
            if is_main:
                self._count(one, body.replace(_MARKER, b""), new)
        if is_main:
            self._same_head(request)
        return size

    @property
    def shares(self):
        """By format, the part of all prompts that a provider could have taken from its cache."""
        return {form: self.cached[form] / self.sent[form] for form in self.sent}

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

    def _same_head(self, request):
        head = (request.system, request.tools)
        if self._head is None:
            self._head = head
        elif head != self._head:
            self._wrong.append("the prompt or the tools changed while the process ran")

    def _is_new(self, request):
        before, self._opening = self._opening, request.turns[0].text
        return before is None or not self._opening.startswith(before)

    def _count(self, one, body, new):
        if not new:
            self.sent[one.form] += len(body)
            self.cached[one.form] += common(one.before, body)
        one.before = body


def common(one, other):
    """Bytes that two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
