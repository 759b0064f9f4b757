"""Names of tools and ids of calls: as all wire formats allow them, and as models write them.

Chat templates and prompts teach models to decorate names, and servers pass on what the model wrote:

    functions.reply   functions.reply:0   default_api:reply   reply<|channel|>commentary   " reply "   Reply

A name counts as a tool's if it is the tool's own, or if it is that of exactly one tool once the decoration is removed. An unknown
namespace is no decoration: `github.search` is not `search`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import attrs

from pegasus.models.base import ToolSpec

_ALLOWED: Final = r"[a-zA-Z0-9_-]{1,64}"
_LONGEST_NAME: Final = 64
_LONGEST_ID: Final = 40


@lru_cache(maxsize=512)
def wire_name(name: str) -> str:
    """Return a tool's name as all wire formats allow it (`^[a-zA-Z0-9_-]{1,64}$`). Different names stay different.

    Each request and each answer asks for the names of all tools, so they are remembered.
    """
    return _restrict(name, _LONGEST_NAME)


def wire_id(call_id: str) -> str:
    """Return a call's id as all wire formats allow it: OpenAI takes 40 characters, Anthropic `^[a-zA-Z0-9_-]+$`."""
    return _restrict(call_id, _LONGEST_ID)


def _restrict(word: str, limit: int) -> str:
    if len(word) <= limit and re.fullmatch(_ALLOWED, word):
        return word
    checksum = f"_{zlib.crc32(word.encode('utf-8', 'surrogatepass')):08x}"
    return re.sub(r"[^a-zA-Z0-9_-]", "_", word)[: limit - len(checksum)] + checksum


# ------------------------------------------------------------------ what models write

_DECORATION: Final = frozenset(
    {
        "function",
        "functions",
        "tool",
        "tools",
        "toolcall",
        "functioncall",
        "defaultapi",
        "default",
        "api",
        "call",
        "mcp",
        "multitooluse",
        "name",
        "namespace",
        "pegasus",
    }
    | {"assistant", "to", "commentary", "final", "recipient", "json"}
)
"""Words beside a name that say nothing, in their plain form."""
_TOKEN: Final = re.compile(r"<[^<>]*>?|\[[A-Z_]{2,}\]")
"""Special token of a chat template, or another tag."""
_WORD: Final = re.compile(r"[\w-]+")
_BEFORE: Final = re.compile(
    r"(?:functions?|tools?|default_api|(?:tool_)?calls?|multi_tool_use|mcp|pegasus)[_.:/]+(?=\w)", re.IGNORECASE
)
_BEHIND: Final = re.compile(r"[_.:#-]+(?:call_?\w{0,40}|\d+)$")
"""Decoration that may be joined to a name whose own words are joined alike."""
_LONGEST: Final = 300
"""Characters of a name that are looked at."""


@attrs.define(eq=False, repr=False)
class ToolNames(Mapping[str, ToolSpec]):
    """The tools of a request by what a model may call them. Iterating yields the names without decoration.

    Example: `ToolNames((REPLY,))["functions.reply:0"].name` is "reply".
    """

    _tools: Sequence[ToolSpec]
    """The tools that are offered."""
    _exact: dict[str, ToolSpec] = attrs.field(init=False)
    """Tools by their own names, and by those on the wire: a model has seen the latter."""
    _plain: dict[str, ToolSpec | None] | None = attrs.field(default=None, init=False)
    """Tools by their plain names, made when a name is not exact; None for a name that several have."""

    @_exact.default
    def _by_name(self) -> dict[str, ToolSpec]:
        return {name: tool for tool in self._tools for name in (wire_name(tool.name), tool.name)}

    def __getitem__(self, name: str) -> ToolSpec:
        """Return the tool that a model means. Raises KeyError if there is none, or more than one."""
        if (tool := self._exact.get(name) or self._find(name[:_LONGEST])) is None:
            raise KeyError(name)
        return tool

    def __iter__(self) -> Iterator[str]:
        """Yield the names without decoration."""
        return iter(self._exact)

    def __len__(self) -> int:
        """Return their number."""
        return len(self._exact)

    def own_name(self, name: str) -> str:
        """Return the own name of the tool that a model means; what it wrote if there is no such tool."""
        tool = self.get(name)
        return name if tool is None else tool.name

    def _find(self, name: str) -> ToolSpec | None:
        """Return the only tool whose name this is without decoration."""
        if self._plain is None:
            self._plain = {}
            for tool in self._tools:
                for known in {_plain(tool.name), _plain(wire_name(tool.name))}:
                    self._plain[known] = tool if self._plain.get(known, tool) is tool else None
        # What stands behind a special token belongs to the template; before it stands the name, if anything does.
        written = _TOKEN.split(name)[0]
        said = [word for word in _WORD.findall(written) if _plain(word) not in _DECORATION]
        core = written if said else _TOKEN.sub(" ", name)
        words = [word for word in _WORD.findall(core) if not word.isdigit() and _plain(word) not in _DECORATION]
        candidates = (core, *words) if len(words) == 1 else (core,)
        for candidate in candidates:
            forms = [candidate, _BEHIND.sub("", candidate.strip())]
            while before := _BEFORE.match(forms[-1]):
                forms.append(forms[-1][before.end() :])
            for form in forms:
                if (found := self._plain.get(_plain(form))) is not None:
                    return found
        return None


def _plain(name: str) -> str:
    """Return a name without case, and without what stands between its words."""
    return re.sub(r"[\W_]", "", name).casefold()
