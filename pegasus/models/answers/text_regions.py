"""Regions of an answer's text that may hold tool calls: between tags, in a code block, or bare JSON.

This file finds where such a region begins and ends, and whether tags say for certain that it is a call. What it holds is read in
`text_calls`, whose docstring has the formats.

    find_regions('Well: <tool_call>{"name": "reply"}</tool_call>')  # one TextRegion, certain and closed
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import attrs

from pegasus.models.json_text import ARGUMENT_KEYS, NAME_KEYS, end_of_value, end_of_values

BAR: Final = "[|｜]"
"""Bar of a tag: DeepSeek writes it full-width."""
_PREFIX: Final = rf"(?:{BAR}?DSML{BAR}|[a-z]\w*:)?"
"""Namespace of an element: DeepSeek's, or MiniMax's, Seed's and others'."""
_ELEMENT: Final = rf"{_PREFIX}(?i:\w+_)?(?i:tools?|functions?)_?(?i:calls?|use|code)"
"""Name of an element that holds calls."""
_ABOUT_CALLS: Final = r"(?=[\w▁]*(?i:tool|function|plugin|action|python))"
"""Look at the word of a special token that is about calls."""
_NO_BEGIN: Final = r"(?![\w▁]*(?i:end|stop|suffix|sep|arg|output|response|result|list))"
"""The same for one that begins no call: the end of one, a part of one, or a result."""
_BRACKETED: Final = r"(?:TOOL_CALLS?|TOOL_REQUEST|FUNCTION_CALLS?)"
_TAGS: Final = (
    (r"<start_function_call>", r"<end_function_call>"),
    (rf"<{_ELEMENT}>", rf"</{_ELEMENT}>"),
    (r"<tools>(?=\s*[{\[])", r"</tools>"),
    (r"<function(?:=|\s+name=)[\"']?(?P<name>[\w.:\-]+)[\"']?\s*>", r"</function>"),
    (rf"<{_PREFIX}invoke\s+name=[\"']?(?P<name>[\w.:\-]+)[\"']?\s*>", rf"</{_PREFIX}invoke>"),
    (rf"\[{_BRACKETED}\]", rf"</s>|\[(?:/|END_){_BRACKETED}\]"),
    (r"functools(?=\[)", r"(?!)"),
    (
        rf"<{BAR}{_ABOUT_CALLS}{_NO_BEGIN}[\w▁]+{BAR}?>",
        rf"<{BAR}/[\w▁]+{BAR}>|<{_ABOUT_CALLS}[\w▁]+{BAR}>|<{BAR}[\w▁]*(?i:end|stop|suffix)[\w▁]*{BAR}>|<\|eo[mt]_id\|>",
    ),
    (
        r"(?:<\|start\|>assistant)?<\|channel\|>commentary to=(?:functions\.)?(?P<name>[\w.\-]+)[^{]{0,80}?(?=\{)",
        r"<\|call\|>",
    ),
    (
        r"(?:<\|start\|>)?(?:assistant )?to=(?:functions\.)?(?P<name>[\w.\-]+)\s?<\|channel\|>[^{]{0,80}?(?=\{)",
        r"<\|call\|>",
    ),
    (
        r"<(?P<family>(?:[\w-]+:)?(?=[\w-]*(?i:tool|function|invoke|call))[\w-]+)(?:\s[^<>]{0,300})?>",
        r"</(?:[\w-]+:)?(?=[\w-]*(?i:tool|function|invoke|call))[\w-]+>",
    ),
)
"""Begin and end of regions that are calls for certain, the last one only if it names a tool. They follow how families name their tags
rather than list the tags. `re` compiles them, and keeps them, when the first such region is found."""
LEFT_OVER: Final = (
    rf"</?(?:{_ELEMENT}|tools)>|</function>|<{BAR}?/?{_ABOUT_CALLS}[\w▁]+{BAR}>|<{BAR}{_ABOUT_CALLS}[\w▁]+>"
    rf"|<\|eo[mt]_id\|>|\[/?(?:END_)?{_BRACKETED}\]"
)
"""Tags around calls that were taken out."""
CALL_OPEN: Final = re.compile(
    "(?<!`)(?:" + "|".join(f"(?:{re.sub(r'[?]P<[a-z]+>', '?:', opening)})" for opening, _ in _TAGS) + ")"
)
"""Begin of any such region. A tag behind a backquote is quoted."""
_FENCE: Final = re.compile(r"^[ \t]*+(?P<fence>`{3,9}+|~{3,9}+)[ \t]*+(?P<kind>[\w-]*+)[ \t]*+\n", re.MULTILINE)
"""First line of a code block."""
_FENCE_KINDS: Final = frozenset(
    {"", "json", "json5", "jsonc", "tool_code", "tool_call", "tool_calls", "tool", "python", "xml"}
)
"""Languages of code blocks that may hold a call."""


@attrs.frozen(eq=False, repr=False)
class TextRegion:
    """Part of a text that may hold calls."""

    content: str
    """Text within the tags or the code block."""
    start: int
    """Index of its first character in the text, tags included."""
    end: int
    """Indexes in the text, tags included."""
    is_closed: bool = True
    """Its end is marked, so nothing of it is missing."""
    is_certain: bool = True
    """Tags say that it is a call; else it is one only if it names a tool that is offered."""
    name: str = ""
    """Name of the tool, where it stands outside of the content."""
    head: str = ""
    """Opening tag of an unknown family, whose region is markup for a call only if it names a tool; or a label that says so."""


def find_regions(text: str) -> Iterator[TextRegion]:
    """Yield the parts of a text that may hold calls, in order, none inside of another."""
    at = 0
    while opening := CALL_OPEN.search(text, at):
        # Tags are looked for first, and everything else only between them: JSON within tags belongs to the
        # tags.
        yield from _untagged(text, at, opening.start())
        region = _tagged(text, opening.start())
        yield region
        at = max(region.end, opening.end())
    yield from _untagged(text, at, len(text))


def _tagged(text: str, start: int) -> TextRegion:
    """Return the region whose tag is at `start`. A second tag of the kind ends it as well: some models leave out closing tags."""
    found = ((opening, begin, end) for begin, end in _TAGS if (opening := re.compile(begin).match(text, start)))
    opening, begin, end = next(found)
    groups = opening.groupdict()
    name = groups.get("name") or ""
    head = opening[0] if "family" in groups else ""
    # Such an element may hold others of its kind, and ends with its own name.
    if head and f"</{groups['family']}>" in text[opening.end() :]:
        begin, end = rf"<{re.escape(groups['family'])}[\s>]", rf"</{re.escape(groups['family'])}>"
    # A second opening tag of the kind ends this region, so the closing tag is searched before it only.
    following = re.compile(begin).search(text, opening.end())
    stop = following.start() if following is not None else len(text)
    if (closing := re.compile(end).search(text, opening.end(), stop)) is not None:
        return TextRegion(text[opening.end() : closing.start()], start, closing.end(), name=name, head=head)
    # Nothing says where the region ends: it is as long as its JSON, or as what may be one call.
    stop = end_of_values(text, opening.end(), stop) or stop
    return TextRegion(text[opening.end() : stop], start, stop, is_closed=False, name=name, head=head)


def _untagged(text: str, start: int, stop: int) -> Iterator[TextRegion]:
    """Yield code blocks and bare JSON between two indexes."""
    at = start
    for fence, end in _blocks(text, start, stop):
        yield from _bare(text, at, fence.start())
        # A block in another language is an example for people, and is skipped with whatever it holds.
        if fence["kind"].lower() in _FENCE_KINDS:
            yield TextRegion(text[fence.end() : end.start()], fence.start(), end.end(), is_certain=False)
        at = end.end()
    yield from _bare(text, at, stop)


def _blocks(text: str, start: int, stop: int) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield first and last line of each complete code block. The end of each kind of fence is missed once only: time stays linear."""
    at, unclosed = start, set[str]()
    while fence := _FENCE.search(text, at, stop):
        at, mark = fence.end(), fence["fence"]
        if mark in unclosed:
            continue
        if end := re.compile(rf"^[ \t]*+{mark}[ \t]*+$", re.MULTILINE).search(text, at, stop):
            yield fence, end
            at = end.end()
        else:
            unclosed.add(mark)


_BARE: Final = re.compile(r"(?:^|(?<=[}\];]))[ \t]*(?=[{\[])", re.MULTILINE)
"""Places where JSON may begin: the beginning of a line, or right behind other JSON."""
_FIRST_KEYS: Final = "|".join((*NAME_KEYS, *ARGUMENT_KEYS, "type", "id", "tool_calls"))
"""Keys that may come first in the JSON of a call."""
_FIRST_KEY: Final = re.compile(rf"\{{\s*+\"(?:{_FIRST_KEYS})\"\s*+:")
"""Beginning of such an object."""
_CALL_LIKE: Final = re.compile(
    rf"[{{\[]\s*(?:\{{\s*)?(?:(?://[^\n]{{0,300}}+|/\*[^*]{{0,300}}+\*/)\s*+){{0,10}}+[\"'](?:{_FIRST_KEYS})[\"']\s*:|\[\s*[A-Za-z_]\w*\("
    r"|\{\s*\"\w+\"\s*:\s*\{",
    re.DOTALL,
)
"""Begin of JSON, or of a list of Python calls, that may be a call. Few and short comments may stand before the first key: a bracket
in a comment is looked at as well, and each look must be short."""


def _bare(text: str, start: int, stop: int) -> Iterator[TextRegion]:
    """Yield JSON values that stand alone, between two indexes. One that is cut off is a region too."""
    at = start
    while at < stop and (begin := _BARE.search(text, at, stop)):
        at = begin.end()
        # Most brackets in a text begin no call. This look is short; finding the end of a value may walk through
        # the whole text.
        if not _CALL_LIKE.match(text, at, stop):
            at += 1
            continue
        end = end_of_value(text, at, stop)
        last = stop if end is None else end
        yield TextRegion(text[at:last], at, last, is_closed=end is not None, is_certain=False)
        at = last


def find_last_value(text: str) -> TextRegion | None:
    """Return the JSON object at the end of a text, behind words on the same line; None if there is none that may be a call."""
    end = len(text.rstrip())
    if not text.endswith("}", 0, end):
        return None
    at = tries = 0
    while tries < _MOST_TRIES and (begin := _FIRST_KEY.search(text, at)):
        value_end = end_of_value(text, begin.start())
        if value_end == end:
            return TextRegion(text[begin.start() : end], begin.start(), end, is_certain=False)
        tries += value_end is None
        at = value_end or begin.end()
    return None


_MOST_TRIES: Final = 4
"""Values without an end that are looked at in the search for the last one. Each may cost a walk through the whole text."""


# ------------------------------------------------------------------ regions that only the name of a tool tells

_LEAD: Final = (
    r"^(?:[ \t>=*#`<|:\]\[✿./\-]"
    r"|(?i:functions?|tools?|(?:tool|function)[ _]calls?|call(?:ing)?|invok(?:e|ing)|(?:assistant)?commentary|recipient)\b|to=)*+"
)
"""Words and marks before a name at the beginning of a line."""
_LINK: Final = (
    r"(?:[.:#]\d+)?[^\w{}]{0,12}(?:(?:json|with|arguments?|args|parameters?|input|content|message|ARGS)[^\w{}]{0,12}){0,3}"
    r"(?=\{)"
)
"""Words and marks between it and its arguments."""
_TRAIL: Final = re.compile(r"(?:[\]`)]|\s*<\|\w+\|>|\n[ \t]*```|\s*\n(?:Observation\b|✿RESULT✿).*)*", re.DOTALL)
"""End of a call, with results that a model makes up itself: they are removed with it."""


@lru_cache(maxsize=16)
def named_opening(names: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for the opening tag of an element that is named as a tool. names: a tuple, those of all tools."""
    return re.compile(rf"(?<!`)<(?P<name>{'|'.join(map(re.escape, names))})\s*(?P<empty>/?)>")


@lru_cache(maxsize=16)
def _named_lines(names: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for lines with the name of a tool behind which its arguments stand."""
    name = f"(?:functions?[.:])?(?P<{{}}>{'|'.join(map(re.escape, names))})"
    labelled = (
        r"(?:^[^\w\n]{0,8}Thought[^\w\n]{0,4}:(?:(?![^\w\n]{0,8}Action)[^\n]*\n){1,50}?)?^[^\w\n]{0,8}(?:Action|✿FUNCTION✿|Tool|Function)"
        r"[^\w\n:]{0,4}:[ \t\"'`*]*"
        + name.format("labelled")
        + r"\b[^\w\n]{0,8}\n{1,3}[^\w\n]{0,8}(?:Action[ _]?Input|✿ARGS✿|Arguments|Parameters|Input)\W{0,3}:\s{0,4}(?:```\w*\s{1,4})?"
    )
    run_together = r"(?:^analysis.*?)?assistantcommentary to=" + name.format("run_together") + _LINK
    return re.compile("|".join((labelled, run_together, _LEAD + name.format("leading") + _LINK)), re.MULTILINE)


def find_named(text: str, names: Sequence[str]) -> Iterator[TextRegion]:
    """Yield what may be calls because an element, a label, a line or an expression names a tool. names: those of all, a tuple.

    Whether they are is told by their arguments, except after a label.
    """
    at = 0
    while opening := named_opening(names).search(text, at):
        end_tag, begin = f"</{opening['name']}>", opening.end()
        closing = begin if opening["empty"] else text.find(end_tag, begin)
        is_closed = closing >= 0
        at = begin if opening["empty"] else closing + len(end_tag) if is_closed else len(text)
        content = text[begin:closing] if is_closed else text[begin:]
        yield TextRegion(content, opening.start(), at, is_closed=is_closed, name=opening["name"])
    while line := _named_lines(names).search(text, at):
        begin, label = line.end(), line["labelled"]
        if text.startswith("{", begin):
            end = end_of_value(text, begin)
            content = text[begin:end]
        else:  # a tool with one argument may be given it as plain text, on a line
            newline = text.find("\n", begin)
            end = newline if newline >= 0 else len(text)
            content = json.dumps(text[begin:end].strip())
        is_closed = end is not None
        trail = _TRAIL.match(text, end) if end is not None else None
        at = trail.end() if trail is not None else len(text)
        yield TextRegion(
            content,
            line.start(),
            at,
            is_closed=is_closed,
            is_certain=label is not None,
            name=label or line["run_together"] or line["leading"],
            head=label or "",
        )
    if not at and re.match(rf"\s*(?:<<function>>)?\[?(?:{'|'.join(map(re.escape, names))})\(", text):
        yield TextRegion(text.strip().removeprefix("<<function>>"), 0, len(text), is_certain=False)


# ------------------------------------------------------------------ regions that are still arriving

COMPLETE_BLOCK: Final = re.compile(r"(```++|~~~++)[^\n]*+\n.*?^[ \t]*\1[ \t]*(?:\n|$)", re.MULTILINE | re.DOTALL)
"""A complete code block."""


def may_become_call(text: str) -> bool:
    """Return whether a text that begins with a bracket or a backquote may be, or become, a call."""
    if text[0] in "`~":
        first_line, newline, body = text.partition("\n")
        kind = first_line.strip("`~ \t").lower()
        # One or two backquotes may become three.
        if len(first_line) < 3 and not newline:
            return True
        if not first_line.startswith(("```", "~~~")):
            return False
        if newline and kind not in ("", "json", "tool_code", "tool_call", "tool_calls", "tool"):
            return False
        return not (kind == "" and body.strip() and body.lstrip()[0] not in "{[<")
    inner = text[1:].lstrip()
    return not inner or inner[0] in "{\"'/" or (text[0] == "[" and inner[0].isalpha())
