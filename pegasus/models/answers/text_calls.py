r"""Tool calls that a model wrote as text, and reasoning that it wrote between tags: found in the text of an answer, and taken out.

A server usually reads the calls of a model and returns them apart. Many do not, for want of a parser for that family, or because the
model left the family's own format. Then the call stands in the text. The formats here are those of the common families, as their chat
templates and the parsers of vLLM and llama.cpp have them (https://docs.vllm.ai/en/latest/features/tool_calling.html,
https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md):

    <tool_call>{"name": "reply", "arguments": {…}}</tool_call>              Hermes, Qwen
    <tool_call>reply\n<arg_key>text</arg_key>\n<arg_value>Hi</arg_value></tool_call>              GLM
    <tool_call><function=reply><parameter=text>Hi</parameter></function></tool_call>              Qwen3-Coder
    <function=reply>{…}</function>   <|python_tag|>{"name": …, "parameters": {…}}              Llama
    [TOOL_CALLS][{"name": …, "arguments": {…}}]   [TOOL_CALLS]reply[ARGS]{…}              Mistral
    functools[{"name": …, "arguments": {…}}]   <|tool_call|>[{…}]<|/tool_call|>              Phi
    <｜tool▁call▁begin｜>function<｜tool▁sep｜>reply\n```json\n{…}\n```<｜tool▁call▁end｜>              DeepSeek
    <|channel|>commentary to=functions.reply <|message|>{…}<|call|>              gpt-oss
    ```tool_code\nreply(text="Hi")\n```              Gemma
    ```json\n{"name": …, "arguments": {…}}\n```   or the JSON alone              many

The rules, in this order:

1. What stands in `<think>` (also `<thinking>`, and the analysis channel of gpt-oss) is reasoning, also if it is never closed. A call
   in it is only considered by the model, and never carried out.
2. Tags mark a call for certain. JSON without tags is a call only if it names a tool that the request offers, and has the shape of
   a call.
3. JSON is repaired: comments, trailing commas, arguments given as a string. But a call that is cut off is never carried out, because
   its missing part could change what it does; the model is told.
4. What stands in the prompt is quoted, not called (see `quotes`). Otherwise anybody could have a call made by having a text repeated.

Everything here is pure. `streaming` does the same with a stream.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models.base import ToolSpec
from pegasus.models.formats import wire_name
from pegasus.models.json_text import (
    CUT_CALL,
    end_of_value,
    end_of_values,
    ends_outside_text,
    json_or_text,
    load_json,
    name_in,
    parse_arguments,
    parse_object,
)

_MOST_CALLS: Final = 200
"""Calls that are read from one text. The think loop carries out fewer."""
_MOST_REGIONS: Final = 1000
"""Parts of one text that are looked at. A model that repeats a tag without end has nothing more to say."""


# ------------------------------------------------------------------ calls


@attrs.frozen(eq=False, repr=False)
class TextCall:
    """A call in a text.

    Example: `TextCall("reply", {"text": "Hi"}, 0, 64)`.
    """

    name: str
    arguments: Metadata
    start: int
    """Index of its first character in the text, tags included."""
    end: int
    """Index behind its last character."""
    error: str | None = None
    """Reason why it cannot be carried out, for the model."""
    source: str = ""
    """What was read as calls: between the tags, or in the code block. Calls may share it."""
    is_certain: bool = True
    """Tags say that it is a call."""


@attrs.frozen(eq=False, repr=False)
class _Region:
    """Part of a text that holds calls."""

    content: str
    start: int
    end: int
    """Indexes in the text, tags included."""
    is_closed: bool = True
    """Its end is marked, so nothing of it is missing."""
    is_certain: bool = True
    """Tags say that it is a call; else it is one only if it names a tool that is offered."""
    name: str = ""
    """Name of the tool, where it stands outside of the content."""


_BAR: Final = "[|｜]"
_TAGS: Final = (
    (r"<tool_calls?>", r"</tool_calls?>"),
    (r"<function_calls?>", r"</function_calls?>"),
    (r"<tools>(?=\s*[{\[])", r"</tools>"),
    (r"<\|tool_calls?\|>", r"<\|/tool_calls?\|>"),
    (r"<\|python_tag\|>", r"<\|eo[mt]_id\|>"),
    (r"<function=(?P<name>[\w.\-]+)>", r"</function>"),
    (r"\[TOOL_CALLS\]", r"</s>"),
    (r"functools(?=\[)", r"(?!)"),
    (rf"<{_BAR}tool[▁_]calls?[▁_]begin{_BAR}>", rf"<{_BAR}tool[▁_]calls[▁_]end{_BAR}>"),
    (r"<\|channel\|>commentary to=(?:functions\.)?(?P<tool>[\w.\-]+)[^{]{0,80}?(?=\{)", r"<\|call\|>"),
)
"""Begin and end of regions that are calls for certain."""
CALL_OPEN: Final = re.compile(
    "(?<!`)(?:" + "|".join(f"(?:{re.sub(r'[?]P<[a-z]+>', '?:', opening)})" for opening, _ in _TAGS) + ")"
)
"""Begin of any such region. A tag behind a backquote is quoted."""
_OPENINGS: Final = tuple((re.compile(opening), re.compile(closing)) for opening, closing in _TAGS)
_FENCE: Final = re.compile(r"^[ \t]*+(?P<fence>`{3,9}+|~{3,9}+)[ \t]*+(?P<kind>[\w-]*+)[ \t]*+\n", re.MULTILINE)
"""First line of a code block."""
_FENCE_KINDS: Final = frozenset(
    {"", "json", "json5", "jsonc", "tool_code", "tool_call", "tool_calls", "tool", "python", "xml"}
)
"""Languages of code blocks that may hold a call."""
_FUNCTION: Final = re.compile(r"<function=([\w.\-]+)>(.*?)(</function>|$)", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=(?P<key>[\w.\-]+)>(?P<value>.*?)</parameter>", re.DOTALL)
_ARGUMENT: Final = re.compile(r"<arg_key>(?P<key>[^<]*+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL)
_NAMED: Final = re.compile(r"^\s*<name>(?P<name>[^<]+)</name>\s*<arguments>(?P<value>.*)</arguments>\s*$", re.DOTALL)
_DEEPSEEK_CALL: Final = re.compile(
    rf"<{_BAR}tool[▁_]call[▁_]begin{_BAR}>(?P<body>.*?)(?P<end><{_BAR}tool[▁_]call[▁_]end{_BAR}>|$)", re.DOTALL
)
_DEEPSEEK_SEPARATOR: Final = re.compile(rf"<{_BAR}tool[▁_]sep{_BAR}>")
_LEFT_OVER: Final = re.compile(
    rf"</?(?:tool_calls?|function_calls?|tools)>|</function>|<{_BAR}/?tool[▁_]calls?[▁_](?:begin|end){_BAR}>|<\|eo[mt]_id\|>|```\w*\s*$"
)
"""Tags around calls that were taken out: of lists of calls, and of a code block that was cut off."""
_NEXT_MISTRAL: Final = re.compile(r"\s*+(?:\[TOOL_CALLS\]\s*+)?([A-Za-z_][\w.\-]*)(?:\[ARGS\])?\s*(?=\{)")
_NAME: Final = re.compile(r"[A-Za-z_][\w.\-]*")
_NAME_KEYS: Final = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "kwargs", "params")


def find_calls(text: str, tools: Sequence[ToolSpec]) -> list[TextCall]:
    """Return the calls in a text without reasoning, in order. tools: those that are offered.

    A call between tags may name another tool; carrying it out fails, which tells the model. A call that is cut off before its name has
    none.
    """
    offered = {name: tool for tool in tools for name in (wire_name(tool.name), tool.name)}
    found: list[TextCall] = []
    for region in islice(_regions(text), _MOST_REGIONS):
        calls = list(islice(_calls_in(region, offered), _MOST_CALLS))
        if not calls and _is_cut_call(region, text):
            calls = [TextCall("", {}, region.start, region.end, CUT_CALL)]
        found += calls if region.is_certain else [call for call in calls if call.name in offered]
        if len(found) >= _MOST_CALLS:
            break
    if not found and (last := _last_value(text)) is not None:
        found = [call for call in _calls_in(last, offered) if call.name in offered]
    return [attrs.evolve(call, name=offered[call.name].name) if call.name in offered else call for call in found]


def _is_cut_call(region: _Region, text: str) -> bool:
    """Return whether a region is the begin of a call that ends with the text before it has named a tool."""
    is_last = region.is_certain and not region.is_closed and region.end >= len(text.rstrip())
    return is_last and re.match(r"\s*(?:[{\[<]|$)", region.content) is not None


def remove_calls(text: str, calls: Iterable[TextCall]) -> str:
    """Return the text without these calls."""
    kept: list[str] = []
    at = 0
    for call in calls:
        kept.append(text[at : max(at, call.start)])
        at = max(at, call.end)
    rest = _LEFT_OVER.sub("", "".join((*kept, text[at:])))
    return rest if rest.strip() else ""


# ------------------------------------------------------------------ regions


def _regions(text: str) -> Iterator[_Region]:
    """Yield the parts of a text that may hold calls, in order, none inside of another."""
    at = 0
    while opening := CALL_OPEN.search(text, at):
        yield from _untagged(text, at, opening.start())
        region = _tagged(text, opening.start())
        yield region
        at = max(region.end, opening.end())
    yield from _untagged(text, at, len(text))


def _tagged(text: str, start: int) -> _Region:
    """Return the region whose tag is at `start`. A second tag of the kind ends it as well: some models leave out closing tags."""
    found = ((opening, begin, end) for begin, end in _OPENINGS if (opening := begin.match(text, start)))
    opening, begin, end = next(found)
    groups = opening.groupdict()
    name = groups.get("name") or groups.get("tool") or ""
    following = begin.search(text, opening.end())
    stop = following.start() if following is not None else len(text)
    if (closing := end.search(text, opening.end(), stop)) is not None:
        return _Region(text[opening.end() : closing.start()], start, closing.end(), name=name)
    # Nothing says where the region ends: it is as long as its JSON, or as what may be one call.
    stop = end_of_values(text, opening.end(), stop) or stop
    return _Region(text[opening.end() : stop], start, stop, is_closed=False, name=name)


def _untagged(text: str, start: int, stop: int) -> Iterator[_Region]:
    """Yield code blocks and bare JSON between two indexes."""
    at = start
    for fence, end in _blocks(text, start, stop):
        yield from _bare(text, at, fence.start())
        if fence["kind"].lower() in _FENCE_KINDS:
            yield _Region(text[fence.end() : end.start()], fence.start(), end.end(), is_certain=False)
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
"""Where JSON may begin: at the begin of a line, or right behind other JSON."""
_FIRST_KEYS: Final = "|".join((*_NAME_KEYS, *_ARGUMENT_KEYS, "type", "id", "tool_calls"))
_FIRST_KEY: Final = re.compile(rf"\{{\s*+\"(?:{_FIRST_KEYS})\"\s*+:")
_CALL_LIKE: Final = re.compile(
    rf"[{{\[]\s*(?:\{{\s*)?(?:(?://[^\n]{{0,300}}+|/\*[^*]{{0,300}}+\*/)\s*+){{0,10}}+[\"'](?:{_FIRST_KEYS})[\"']\s*:|\[\s*[A-Za-z_]\w*\("
    r"|\{\s*\"\w+\"\s*:\s*\{",
    re.DOTALL,
)
"""Begin of JSON, or of a list of Python calls, that may be a call. Few and short comments may stand before the first key: a bracket
in a comment is looked at as well, and each look must be short."""


def _bare(text: str, start: int, stop: int) -> Iterator[_Region]:
    """Yield JSON values that stand alone, between two indexes. One that is cut off is a region too."""
    at = start
    while at < stop and (begin := _BARE.search(text, at, stop)):
        at = begin.end()
        if not _CALL_LIKE.match(text, at, stop):
            at += 1
            continue
        end = end_of_value(text, at, stop)
        last = stop if end is None else end
        yield _Region(text[at:last], at, last, is_closed=end is not None, is_certain=False)
        at = last


def _last_value(text: str) -> _Region | None:
    """Return the JSON object at the end of a text, behind words on the same line; None if there is none that may be a call."""
    end = len(text.rstrip())
    if not text.endswith("}", 0, end):
        return None
    at = tries = 0
    while tries < _MOST_TRIES and (begin := _FIRST_KEY.search(text, at)):
        value_end = end_of_value(text, begin.start())
        if value_end == end:
            return _Region(text[begin.start() : end], begin.start(), end, is_certain=False)
        tries += value_end is None
        at = value_end or begin.end()
    return None


_MOST_TRIES: Final = 4
"""Values without an end that are looked at in the search for the last one. Each may cost a walk through the whole text."""


# ------------------------------------------------------------------ calls of a region


def _calls_in(region: _Region, offered: Mapping[str, ToolSpec]) -> Iterator[TextCall]:
    """Yield the calls of a region. The first one takes the place of the whole region, the others stand at its end."""
    start = region.start
    for name, arguments, error in _parse(region, offered):
        name = name.removeprefix("functions.")
        yield TextCall(name, arguments, start, region.end, error, region.content, region.is_certain)
        start = region.end


_Parsed = tuple[str, Metadata, str | None]
"""Name, arguments, error."""


def _parse(region: _Region, offered: Mapping[str, ToolSpec]) -> Iterator[_Parsed]:
    """Yield name, arguments and error of each call of a region."""
    content = region.content
    if _DEEPSEEK_CALL.search(content) or _DEEPSEEK_SEPARATOR.search(content):
        yield from _parse_deepseek(region)
        return
    if nested := list(_FUNCTION.finditer(content)):
        for match in nested:
            yield _parse_elements(match[1], match[2], _PARAMETER, "<parameter=", offered, is_closed=bool(match[3]))
        return
    if region.name:
        if "<parameter=" in content:
            yield _parse_elements(region.name, content, _PARAMETER, "<parameter=", offered, is_closed=region.is_closed)
        else:
            yield (region.name, *parse_object(content, is_closed=region.is_closed))
        return
    if "<arg_key>" in content or (region.is_certain and re.fullmatch(r"\s*[A-Za-z_][\w.\-]*\s*", content)):
        name = _NAME.search(content)
        yield _parse_elements(
            name[0] if name else "", content, _ARGUMENT, "<arg_key>", offered, is_closed=region.is_closed
        )
        return
    if named := _NAMED.match(content):
        yield (named["name"].strip(), *parse_object(named["value"], is_closed=True))
        return
    may_be_python = not content.lstrip().startswith(("{", "[{", "//", "/*", "#"))
    if may_be_python and (python := list(_parse_python(content, offered))):
        yield from python
        return
    if mistral := re.match(r"\s*([A-Za-z_][\w.\-]*)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(?=\{)", content):
        yield from _parse_mistral(region, mistral)
        return
    yield from _parse_values(region, offered)


def _parse_deepseek(region: _Region) -> Iterator[_Parsed]:
    """Yield the calls of DeepSeek's format: V3 with the type before the name, V3.1 with the arguments right behind it."""
    bodies = [(match["body"], bool(match["end"])) for match in _DEEPSEEK_CALL.finditer(region.content)]
    for body, is_closed in bodies or [(region.content, region.is_closed)]:
        head, _, rest = _DEEPSEEK_SEPARATOR.sub("\x00", body, count=1).partition("\x00")
        if head.strip() == "function":
            name, _, rest = rest.partition("\n")
        else:
            name = head
        rest = re.sub(r"^\s*```\w*\n|\n?```\s*$", "", rest)
        yield (name.strip(), *parse_object(rest, is_closed=is_closed))


def _parse_mistral(region: _Region, first: re.Match[str]) -> Iterator[_Parsed]:
    """Yield the calls of Mistral's newer format: the name, then the arguments, one after the other."""
    content = region.content
    match: re.Match[str] | None = first
    while match:
        end = end_of_value(content, match.end())
        yield (match[1], *parse_object(content[match.end() : end], is_closed=end is not None))
        match = None if end is None else _NEXT_MISTRAL.match(content, end)


def _parse_elements(
    name: str, content: str, element: re.Pattern[str], opening: str, offered: Mapping[str, ToolSpec], *, is_closed: bool
) -> _Parsed:
    """Return a call whose arguments are elements. Their values are text; it becomes JSON where the tool's schema wants no string."""
    # No element ends behind the last closing tag: looking for the end of one there would cost time for each of them.
    closing = "</parameter>" if element is _PARAMETER else "</arg_value>"
    found = list(element.finditer(content, 0, max(0, content.rfind(closing)) + len(closing)))
    if not is_closed or content.count(opening) != len(found):
        return name, {}, CUT_CALL
    tool = offered.get(name.removeprefix("functions."))
    properties: Any = tool.parameters.get("properties") if tool else None
    arguments: dict[str, Json] = {}
    for match in found:
        value = match["value"].removeprefix("\n").removesuffix("\n")
        key = match["key"].strip()
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        is_text = not isinstance(schema, Mapping) or schema.get("type") == "string"
        arguments[key] = value if is_text else json_or_text(value)
    return (name, *parse_arguments(arguments))


def _parse_python(content: str, offered: Mapping[str, ToolSpec]) -> Iterator[_Parsed]:
    """Yield the calls of Python code that consists of calls of offered tools with constant arguments, else nothing."""
    try:
        module = ast.parse(content.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    parsed: list[_Parsed] = []
    for statement in module.body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        calls = value.elts if isinstance(value, ast.List) else [value]
        for call in calls:
            match call:
                case ast.Call(func=ast.Name(id="print"), args=[printed]):
                    call = printed
            made = _python_call(call, offered)
            if made is None:
                return
            parsed.append(made)
    yield from parsed


def _python_call(call: ast.expr | None, offered: Mapping[str, ToolSpec]) -> _Parsed | None:
    """Return the call of an offered tool; None for any other expression. Positional arguments are those of the schema, in order."""
    if not isinstance(call, ast.Call):
        return None
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            tool = offered.get(name)
        case _:
            tool = None
    if tool is None:
        return None
    properties = tool.parameters.get("properties")
    keys = list(properties) if isinstance(properties, Mapping) else []
    try:
        arguments = {key: ast.literal_eval(value) for key, value in zip(keys, call.args, strict=False)}
        arguments |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    checked, error = parse_arguments(arguments)
    return tool.name, checked, error


_SEPARATORS: Final = re.compile(r"(?:[\s,;]++|//[^\n]*+|/\*[^*]*+\*/)*+(?=[{\[])")


def _parse_values(region: _Region, offered: Mapping[str, ToolSpec]) -> Iterator[_Parsed]:
    """Yield the calls of the JSON values of a region, which may stand one behind the other."""
    content, at = region.content, 0
    for _ in range(_MOST_CALLS):
        if (begin := _SEPARATORS.match(content, at)) is None:
            return
        end = end_of_value(content, begin.end())
        if end is None and not (region.is_closed and ends_outside_text(content[begin.end() :])):
            name = name_in(content[begin.end() :])
            if name:
                yield name, {}, CUT_CALL
            return
        value = load_json(content[begin.end() : end])
        yield from _calls_of(value, offered, is_certain=region.is_certain)
        if end is None:
            return
        at = end


def _calls_of(value: Json, offered: Mapping[str, ToolSpec], *, is_certain: bool) -> Iterator[_Parsed]:
    """Yield the calls that a JSON value describes; nothing if it has another meaning."""
    if isinstance(value, list):
        for item in value[:_MOST_CALLS]:
            yield from _calls_of(item, offered, is_certain=is_certain)
        return
    if not isinstance(value, dict):
        return
    if isinstance(value.get("tool_calls"), list):
        yield from _calls_of(value["tool_calls"], offered, is_certain=is_certain)
        return
    inner = value.get("function")
    if isinstance(inner, dict):
        yield from _calls_of(inner, offered, is_certain=is_certain)
        return
    name_key = next((key for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    if name_key is None:
        [(key, arguments), *others] = value.items() or [("", None)]
        if not others and key in offered and isinstance(arguments, dict):
            yield key, arguments, None
        return
    name = str(value[name_key]).removeprefix("functions.")
    argument_key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    if argument_key is not None:
        if not _is_schema(value, value[argument_key]):
            yield (name, *_as_arguments(value[argument_key]))
        return
    rest = {key: item for key, item in value.items() if key not in (name_key, "type", "id")}
    properties = offered[name].parameters.get("properties") if name in offered else None
    if (is_certain and not rest) or (rest and isinstance(properties, Mapping) and set(rest) <= set(properties)):
        yield name, rest, None


def _is_schema(value: Mapping[str, Json], arguments: Json) -> bool:
    """Return whether this is the description of a tool, as the prompt has it, rather than a call."""
    is_object = isinstance(arguments, dict) and arguments.get("type") == "object" and "properties" in arguments
    return is_object or (isinstance(arguments, dict) and "description" in value and "properties" in arguments)


def _as_arguments(value: Json) -> tuple[Metadata, str | None]:
    """Return the arguments of a call; those in a string are parsed once more."""
    if isinstance(value, str) and value.strip():
        return parse_object(value, is_closed=True)
    return parse_arguments({} if value in ("", None) else value)
