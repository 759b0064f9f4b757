r"""Tool calls that a model wrote as text, and reasoning that it wrote between tags: found in the text of an answer, and taken out.

A server usually reads the calls of a model and returns them apart. Many do not, for want of a parser for that family, or because the
model left the family's own format. Then the call stands in the text. The formats here are those of the common families, as their chat
templates and the parsers of vLLM and llama.cpp have them (https://docs.vllm.ai/en/latest/features/tool_calling.html,
https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md):

    <tool_call>{"name": "reply", "arguments": {…}}</tool_call>              Hermes, Qwen
    <tool_call>reply\n<arg_key>text</arg_key>\n<arg_value>Hi</arg_value></tool_call>              GLM
    <tool_call><function=reply><parameter=text>Hi</parameter></function></tool_call>              Qwen3-Coder
    <function=reply>{…}</function>   <|python_tag|>{"name": …, "parameters": {…}}              Llama
    <|python_tag|>reply.call(text="Hi")              Llama's own tools
    [TOOL_CALLS][{"name": …, "arguments": {…}}]   [TOOL_CALLS]reply[ARGS]{…}              Mistral
    functools[{"name": …, "arguments": {…}}]   <|tool_call|>[{…}]<|/tool_call|>              Phi
    <｜tool▁call▁begin｜>function<｜tool▁sep｜>reply\n```json\n{…}\n```<｜tool▁call▁end｜>              DeepSeek
    <|channel|>commentary to=functions.reply <|message|>{…}<|call|>              gpt-oss
    <|tool_calls_section_begin|><|tool_call_begin|>functions.reply:0<|tool_call_argument_begin|>{…}<|tool_call_end|>…              Kimi
    <minimax:tool_call><invoke name="reply"><parameter name="text">Hi</parameter></invoke></minimax:tool_call>              MiniMax
    <｜DSML｜function_calls><｜DSML｜invoke name="reply"><｜DSML｜parameter name="text" string="true">Hi…              DeepSeek 3.2
    <seed:tool_call><function=reply>…   <longcat_tool_call>reply<longcat_arg_key>…              Seed, LongCat
    <|START_ACTION|>[{"tool_name": …, "parameters": {…}}]<|END_ACTION|>              Command R
    <|action_start|><|plugin|>{…}<|action_end|>              InternLM
    <|tool_call_start|>[reply(text="Hi")]<|tool_call_end|>   <|python_start|>[reply(…)]<|python_end|>              LFM2, Llama 4
    <TOOLCALL>[{…}]</TOOLCALL>   <|tools_prefix|>[{"reply": {…}}]<|tools_suffix|>              Nemotron, Apertus
    <start_function_call>call:reply{text:<escape>Hi<escape>}<end_function_call>              FunctionGemma; Gemma 4 alike
    ```tool_code\nreply(text="Hi")\n```              Gemma
    <reply><text>Hi</text></reply>   Action: reply\nAction Input: {…}   reply\n{…}              Cline, ReAct, GLM 4 and others
    ```json\n{"name": …, "arguments": {…}}\n```   or the JSON alone              many

The rules, in this order:

1. What stands in `<think>` (also `<thinking>`, and the analysis channel of gpt-oss) is reasoning, also if it is never closed. A call
   in it is only considered by the model, and never carried out.
2. Tags mark a call for certain. JSON without tags is a call only if it names a tool that the request offers, and has the shape of
   a call.
3. JSON is repaired: comments, trailing commas, arguments given as a string. But a call that is cut off is never carried out, because
   its missing part could change what it does; the model is told.
4. What stands in the prompt is quoted, not called (see `without_quotes`). Otherwise anybody could have a call made by having a text
   repeated.

Everything here is pure. `streaming` does the same with a stream.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models.answers.text_regions import (
    BAR,
    LEFT_OVER,
    TextRegion,
    find_last_value,
    find_named,
    find_regions,
)
from pegasus.models.base import AssistantTurn, ModelRequest, ToolSpec, UserTurn
from pegasus.models.formats import ToolNames, encode_json
from pegasus.models.json_text import (
    ARGUMENT_KEYS,
    CUT_CALL,
    NAME_KEYS,
    end_of_value,
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
    """A call in a text."""

    name: str
    """Name of the tool as it stands in the text, later as the request offers it; "" if the call was cut off before
    it."""
    arguments: Metadata
    """Arguments; {} if they cannot be read."""
    start: int
    """Index of its first character in the text, tags included."""
    end: int
    """Index behind its last character."""
    error: str | None = None
    """Reason why it cannot be carried out, for the model."""
    source: str = ""
    """Text that was read as calls: between the tags, or in the code block. Calls may share it."""
    is_certain: bool = True
    """Tags say that it is a call."""


_FUNCTION: Final = re.compile(r"<function(?:=|\s+name=)[\"']?([\w.:\-]+)[\"']?\s*>(.*?)(</function>|$)", re.DOTALL)
"""A call of Qwen3-Coder's or Llama's form."""
_INVOKE: Final = re.compile(r"<[^<>\s]*?invoke\s+name=[\"']?([\w.:\-]+)[\"']?\s*>(.*?)(</[^<>\s]*invoke>|$)", re.DOTALL)
"""A call of Anthropic's form, which MiniMax and DeepSeek 3.2 use within tags of their own."""
_PARAMETER: Final = re.compile(
    r"<[^<>\s=]*?parameter(?:=|\s+name=)[\"']?(?P<key>[\w.\-]+)[\"']?(?:\s+string=[\"']?(?P<string>true|false)[\"']?)?\s*>"
    r"(?P<value>.*?)</[^<>\s]*?parameter>",
    re.DOTALL,
)
"""An argument of these forms. DeepSeek says whether its value is a text."""
_PARAMETER_OPEN: Final = re.compile(r"<[^<>\s=/]*?parameter(?:=|\s+name=)")
_OWN_ELEMENT: Final = re.compile(r"\s*<(?P<key>\w+)>(?P<value>.*?)</(?P=key)>\s*", re.DOTALL)
"""An argument that is an element of its own name, as Cline and others teach it."""
_ARGUMENT: Final = re.compile(
    r"<\w*arg_key>(?P<key>[^<]*+)</\w*arg_key>\s*<\w*arg_value>(?P<value>.*?)</\w*arg_value>", re.DOTALL
)
"""An argument of GLM's form."""
_ARGUMENT_OPEN: Final = re.compile(r"<\w*arg_key>")
_NAMED: Final = re.compile(
    r"^\s*<(?:tool_)?name>(?P<name>[^<]+)</(?:tool_)?name>\s*<(?P<of>arguments|parameters|args|input)>(?P<value>.*)</(?P=of)>\s*$",
    re.DOTALL,
)
"""A call whose name and arguments are elements."""
_GEMMA_CALL: Final = re.compile(r"\s*call:([\w.\-]*)\s*")
"""Begin of a call of Gemma's own form. Its keys have no quotation marks, and its strings stand between two tokens."""
_GEMMA_PART: Final = re.compile(r"(<escape>|<\|\"\|>)(.*?)\1|([A-Za-z_][\w.\-]*)(?=\s*:)", re.DOTALL)
"""A string or a key in it."""
_DEEPSEEK_CALL: Final = re.compile(
    rf"<{BAR}tool[▁_]call[▁_]begin{BAR}>(?P<body>.*?)(?P<end><{BAR}tool[▁_]call[▁_]end{BAR}>|$)", re.DOTALL
)
"""A call of DeepSeek's form, or the rest of one that is cut off."""
_DEEPSEEK_SEPARATOR: Final = re.compile(rf"<{BAR}tool[▁_]sep{BAR}>")
"""Stands between the parts of such a call."""
_LEFT_OVER: Final = re.compile(LEFT_OVER + r"|```\w*\s*$")
"""Tags around calls that were taken out: of lists of calls, and of a code block that was cut off."""
_TOKENS: Final = rf"(?:\s|<{BAR}[^<>|｜]*{BAR}>|\[ARGS\]|```\w*\s)*+"
"""Special tokens, and the first line of a code block, between a name and its arguments."""
_NAME_AND_OBJECT: Final = re.compile(rf"{_TOKENS}([A-Za-z_][\w.:\-]*)(?:\[CALL_ID\]\w+)?{_TOKENS}(?=\{{)")
"""Name of a call in front of its arguments: Mistral's, Kimi's and others'."""
_NEXT_MISTRAL: Final = re.compile(r"\s*+(?:\[TOOL_CALLS\]\s*+)?([A-Za-z_][\w.\-]*)(?:\[ARGS\])?\s*(?=\{)")
"""Name of a further call behind the arguments of one."""
_NAME: Final = re.compile(r"[A-Za-z_][\w.\-]*")


def find_calls(text: str, tools: Sequence[ToolSpec]) -> list[TextCall]:
    """Return the calls in a text without reasoning, in order. tools: those that are offered.

    A call between tags may name another tool; carrying it out fails, which tells the model. A call that is cut off before its name has
    none.
    """
    offered = ToolNames(tools)
    found: list[TextCall] = []
    for region in islice(find_regions(text), _MOST_REGIONS):
        calls = list(islice(_calls_in(region, offered), _MOST_CALLS))
        if region.head:
            calls = [call for call in calls if call.name in offered]
        # The model learns from the error that its call has not been carried out. Nobody is shown what looks like one.
        if not calls and (_is_cut_call(region, text) or _is_markup(region, offered)):
            calls = [TextCall("", {}, region.start, region.end, CUT_CALL)]
        found += calls if region.is_certain else [call for call in calls if call.name in offered]
        if len(found) >= _MOST_CALLS:
            break
    # Only where nothing else is a call: JSON behind words on the same line may be a part of the sentence.
    if not found and (last := find_last_value(text)) is not None:
        found = [call for call in _calls_in(last, offered) if call.name in offered]
    if not found and offered:
        regions = islice(find_named(text, tuple(offered)), _MOST_REGIONS)
        found = [
            call
            for region in regions
            for call in _calls_in(region, offered)
            if region.head or _is_of_schema(call, offered)
        ]
    return [attrs.evolve(call, name=offered.own_name(call.name)) for call in found]


def _is_of_schema(call: TextCall, offered: ToolNames) -> bool:
    """Return whether a call that only its tool's name tells has arguments of this tool, or may do without."""
    tool = offered.get(call.name)
    properties: Any = tool.parameters.get("properties") if tool else None
    if tool is None or not isinstance(properties, Mapping):
        return False
    if call.error or not call.arguments:
        is_begun = any(f"<{key}>" in call.source or f'"{key}"' in call.source for key in properties)
        return is_begun if call.error else not tool.parameters.get("required") and not call.source.strip()
    return call.arguments.keys() <= properties.keys()


def _is_cut_call(region: TextRegion, text: str) -> bool:
    """Return whether a region is a call that is cut off by the end of the text before its tool is named."""
    is_last = region.is_certain and not region.is_closed and region.end >= len(text.rstrip())
    return is_last and re.match(r"\s*(?:[{\[<]|$)", region.content) is not None


_LIKE_CALL: Final = re.compile(r"\s*(?:[{\[<(]|[\w.:\-]+\s*(?:[({<=]|\n|$))")
"""Begin of what may be a call in the form of an unknown family."""


def _is_markup(region: TextRegion, offered: ToolNames) -> bool:
    """Return whether a region that cannot be read looks like a call, rather than words about one.

    An element of an unknown family does if its tag, or the beginning of what it holds, names a tool.
    """
    if not region.is_certain or not region.is_closed:
        return False
    if not region.head:
        first = _NAME.match(region.content.lstrip())
        return _LIKE_CALL.match(region.content) is not None or (first is not None and first[0] in offered)
    begin = f"{region.head}{region.content[:_GLIMPSE].strip()}\n"
    return any(word in offered for word in _MARKED_WORD.findall(begin))


_MARKED_WORD: Final = re.compile(r"(?<=[\"'<>=:])([\w.\-]+)(?=[\"'<>({:=\n])")
"""Word of markup that may be the name of a tool."""
_GLIMPSE: Final = 200
"""Characters of an element in which the name of its tool is looked for."""


def remove_calls(text: str, calls: Iterable[TextCall]) -> str:
    """Return the text without these calls."""
    kept: list[str] = []
    at = 0
    for call in calls:
        kept.append(text[at : max(at, call.start)])
        at = max(at, call.end)
    rest = _LEFT_OVER.sub("", "".join((*kept, text[at:])))
    return rest if rest.strip() else ""


def without_calls_in_text(text: str, calls: Iterable[TextCall]) -> str:
    """Return the text without the calls that tags mark as such; the text itself if there are none."""
    certain = [call for call in calls if call.is_certain]
    return remove_calls(text, certain) if certain else text


# ------------------------------------------------------------------ calls of a region


def _calls_in(region: TextRegion, offered: ToolNames) -> Iterator[TextCall]:
    """Yield the calls of a region. The first one takes the place of the whole region, the others stand at its end."""
    start = region.start
    for name, arguments, error in _parse(region, offered):
        name = name.removeprefix("functions.")
        yield TextCall(name, arguments, start, region.end, error, region.content, region.is_certain)
        start = region.end


_Parsed = tuple[str, Metadata, str | None]
"""Name, arguments, error."""


def _parse(region: TextRegion, offered: ToolNames) -> Iterator[_Parsed]:
    """Yield name, arguments and error of each call of a region."""
    content = region.content
    # The forms are told apart from the most peculiar to the most common. JSON comes last, because it may stand
    # within all others.
    if _DEEPSEEK_CALL.search(content) or _DEEPSEEK_SEPARATOR.search(content):
        yield from _parse_deepseek(region, offered)
        return
    if nested := list(_FUNCTION.finditer(content)) or list(_INVOKE.finditer(content)):
        for match in nested:
            yield _parse_named(match[1], match[2], offered, is_closed=bool(match[3]))
        return
    if region.name:
        yield _parse_named(region.name, content, offered, is_closed=region.is_closed)
        return
    if gemma := _GEMMA_CALL.match(content):
        arguments = _GEMMA_PART.sub(_json_of_part, content[gemma.end() :])
        yield (gemma[1], *parse_object(arguments, is_closed=region.is_closed))
        return
    if "arg_key>" in content or (region.is_certain and re.fullmatch(r"\s*[A-Za-z_][\w.\-]*\s*", content)):
        name = _NAME.search(content)
        yield _parse_elements(
            name[0] if name else "", content, _ARGUMENT, _ARGUMENT_OPEN, offered, is_closed=region.is_closed
        )
        return
    if named := _NAMED.match(content):
        yield _parse_named(named["name"].strip(), named["value"], offered, is_closed=True)
        return
    # JSON would be parsed as Python as well, and a comment could hide what follows.
    may_be_python = not content.lstrip().startswith(("{", "[{", "//", "/*", "#"))
    if may_be_python and (python := list(_parse_python(content, offered))):
        yield from python
        return
    if named_object := _NAME_AND_OBJECT.match(content):
        yield from _parse_mistral(region, named_object)
        return
    yield from _parse_values(region, offered)


def _json_of_part(part: re.Match[str]) -> str:
    """Return a string or a key of Gemma's form as JSON has it."""
    return encode_json(part[2] if part[1] else part[3]).decode()


def _parse_named(name: str, content: str, offered: ToolNames, *, is_closed: bool) -> _Parsed:
    """Return a call whose name stands in its tag: with elements as arguments, or with an object."""
    if _PARAMETER_OPEN.search(content) or (is_closed and not content.strip()):
        return _parse_elements(name, content, _PARAMETER, _PARAMETER_OPEN, offered, is_closed=is_closed)
    if is_closed and (own := _own_elements(content)):
        return (name, *_typed_arguments(name, own, offered))
    if content.startswith('"') and (key := _only_argument(name, offered)) and isinstance(json_or_text(content), str):
        return name, {key: json_or_text(content)}, None
    return (name, *parse_object(content, is_closed=is_closed))


def _only_argument(name: str, offered: ToolNames) -> str | None:
    """Return the argument that is all a tool needs, if it is a text; None if there is no such one."""
    schema = offered[name].parameters if name in offered else {}
    properties: Any = schema.get("properties")
    keys: Any = schema.get("required") or list(properties or ())
    is_text = len(keys) == 1 and isinstance(properties, Mapping) and properties[keys[0]].get("type") == "string"
    return str(keys[0]) if is_text else None


def _parse_deepseek(region: TextRegion, offered: ToolNames) -> Iterator[_Parsed]:
    """Yield the calls of DeepSeek's format: V3 with the type before the name, V3.1 with the arguments right behind it."""
    bodies = [(match["body"], bool(match["end"])) for match in _DEEPSEEK_CALL.finditer(region.content)]
    for body, is_closed in bodies or [(region.content, region.is_closed)]:
        head, _, rest = _DEEPSEEK_SEPARATOR.sub("\x00", body, count=1).partition("\x00")
        if head.strip() == "function":
            if invoked := _INVOKE.match(rest.strip()):  # Step's form within DeepSeek's
                yield _parse_named(invoked[1], invoked[2], offered, is_closed=bool(invoked[3]))
                continue
            name, _, rest = rest.partition("\n")
        else:
            name = head
        rest = re.sub(r"^\s*```\w*\n|\n?```\s*$", "", rest)
        yield (name.strip(), *parse_object(rest, is_closed=is_closed))


def _parse_mistral(region: TextRegion, first: re.Match[str]) -> Iterator[_Parsed]:
    """Yield the calls of Mistral's newer format: the name, then the arguments, one after the other."""
    content = region.content
    match: re.Match[str] | None = first
    while match:
        end = end_of_value(content, match.end())
        yield (match[1], *parse_object(content[match.end() : end], is_closed=end is not None))
        match = None if end is None else _NEXT_MISTRAL.match(content, end)


def _parse_elements(
    name: str,
    content: str,
    element: re.Pattern[str],
    opening: re.Pattern[str],
    offered: ToolNames,
    *,
    is_closed: bool,
) -> _Parsed:
    """Return a call whose arguments are elements. Their values are text; it becomes JSON where the tool's schema wants no string."""
    # No element ends behind the last closing tag: looking for the end of one there would cost time for each of them.
    closing = "parameter>" if element is _PARAMETER else "arg_value>"
    found = list(element.finditer(content, 0, max(0, content.rfind(closing)) + len(closing)))
    # An element without its end: a value may be missing or cut.
    if not is_closed or len(opening.findall(content)) != len(found):
        return name, {}, CUT_CALL
    return (name, *_typed_arguments(name, found, offered))


def _own_elements(content: str) -> list[re.Match[str]]:
    """Return the elements that a content consists of; none if it has anything beside them."""
    found: list[re.Match[str]] = []
    at = 0
    while at < len(content):
        if (element := _OWN_ELEMENT.match(content, at)) is None:
            return []
        found.append(element)
        at = element.end()
    return found


def _typed_arguments(name: str, found: Iterable[re.Match[str]], offered: ToolNames) -> tuple[Metadata, str | None]:
    """Return the arguments that elements have, as `parse_arguments` does."""
    tool = offered.get(name.removeprefix("functions."))
    properties: Any = tool.parameters.get("properties") if tool else None
    arguments: dict[str, Json] = {}
    for match in found:
        value = match["value"].removeprefix("\n").removesuffix("\n")
        key = match["key"].strip()
        schema = properties.get(key) if isinstance(properties, Mapping) else None
        # A value of an unknown argument stays a text, since guessing would turn "007" into 7.
        is_text = not isinstance(schema, Mapping) or schema.get("type") == "string"
        if "string" in match.re.groupindex and match["string"]:
            is_text = match["string"] == "true"
        arguments[key] = value if is_text else json_or_text(value)
    return parse_arguments(arguments)


def _parse_python(content: str, offered: ToolNames) -> Iterator[_Parsed]:
    """Yield the calls of Python code that consists of calls of offered tools with constant arguments, else nothing."""
    try:
        # Parsed and never run. Only calls of offered tools with constant arguments are taken.
        module = ast.parse(content.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    parsed: list[_Parsed] = []
    for statement in module.body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        calls = value.elts if isinstance(value, ast.List) else [value]
        for call in calls:
            match call:
                # Gemma writes a call as `print(tool(…))`.
                case ast.Call(func=ast.Name(id="print"), args=[printed]):
                    call = printed
            made = _python_call(call, offered)
            if made is None:
                return
            parsed.append(made)
    yield from parsed


def _python_call(call: ast.expr | None, offered: ToolNames) -> _Parsed | None:
    """Return the call of an offered tool; None for any other expression. Positional arguments are those of the schema, in order."""
    if not isinstance(call, ast.Call):
        return None
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr="call") | ast.Name(id=name) | ast.Attribute(attr=name):
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
"""Everything that may stand between two JSON values: blanks, commas and comments."""


def _parse_values(region: TextRegion, offered: ToolNames) -> Iterator[_Parsed]:
    """Yield the calls of the JSON values of a region, which may stand one behind the other."""
    content, at = region.content, 0
    for _ in range(_MOST_CALLS):
        if (begin := _SEPARATORS.match(content, at)) is None:
            return
        end = end_of_value(content, begin.end())
        # Without an end the value is cut off, unless a tag says that the region is complete: then only brackets
        # are missing, which can be repaired.
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


def _calls_of(value: Json, offered: ToolNames, *, is_certain: bool) -> Iterator[_Parsed]:
    """Yield the calls that a JSON value describes; nothing if it has another meaning."""
    match value:
        case list():
            for item in value[:_MOST_CALLS]:
                yield from _calls_of(item, offered, is_certain=is_certain)
        case (
            {"tool_calls": list() as inner}
            | {"function": dict() as inner}
            | {"function_call": dict() as inner}
            | {"functionCall": dict() as inner}
        ):
            yield from _calls_of(inner, offered, is_certain=is_certain)
        case dict():
            call = _call_of(value, offered, is_certain=is_certain)
            if call is not None:
                yield call


def _call_of(value: dict[str, Json], offered: ToolNames, *, is_certain: bool) -> _Parsed | None:
    """Return the call that a JSON object describes, None if it has another meaning."""
    name_key = next((key for key in NAME_KEYS if isinstance(value.get(key), str)), None)
    if name_key is None:
        # Some models use the tool's name as the only key of the object.
        key, arguments = next(iter(value.items()), ("", None))
        return (key, arguments, None) if len(value) == 1 and key in offered and isinstance(arguments, dict) else None
    name = str(value[name_key]).removeprefix("functions.")
    argument_key = next((key for key in ARGUMENT_KEYS if key in value), None)
    if argument_key is not None:
        arguments = value[argument_key]
        return None if _is_schema(value, arguments) else (name, *_as_arguments(arguments))
    rest = {key: item for key, item in value.items() if key not in (name_key, "type", "id")}
    properties = offered[name].parameters.get("properties") if name in offered else None
    # Arguments beside the name instead of within an object of their own. All of them must be the tool's, or it
    # is other JSON.
    is_call = set(rest) <= set(properties) if rest and isinstance(properties, Mapping) else is_certain and not rest
    return (name, rest, None) if is_call else None


def _is_schema(value: Mapping[str, Json], arguments: Json) -> bool:
    """Return whether this is the description of a tool, as the prompt has it, rather than a call."""
    is_object = isinstance(arguments, dict) and arguments.get("type") == "object" and "properties" in arguments
    return is_object or (isinstance(arguments, dict) and "description" in value and "properties" in arguments)


def _as_arguments(value: Json) -> tuple[Metadata, str | None]:
    """Return the arguments of a call; those in a string are parsed once more."""
    if isinstance(value, str) and value.strip():
        return parse_object(value, is_closed=True)
    return parse_arguments({} if value in ("", None) else value)


# ------------------------------------------------------------------ calls that are only shown

TEXT_CALL: Final = "text_"
"""Beginning of the ids of calls that were read from text."""
_SHORTEST_QUOTE: Final = 16
"""Characters. A shorter call is not looked for in the prompt."""
_LAYOUT: Final = re.compile(r"\\+[nrt]|[\s\\]+")
"""Characters that differ between a text, the same text inside of JSON, and the same with another indentation."""
_BLOCK_EDGE: Final = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
"""First or last line of a code block."""
_CODED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
"""A character that JSON has as an escape."""


def without_quotes(text: str, calls: list[TextCall], request: ModelRequest) -> list[TextCall]:
    """Return the calls in an answer's text that the model makes, rather than shows.

    A call that stands in the prompt is an echo. One with tags is an echo only if the tags stand there too, since a model may be
    asked to make a call. One without tags is an echo also if the model has put it into a code block or indented it. If one call of
    a region is an echo, so are the others.

    A call in a code block with words around it is an example if the model has called tools properly in this conversation.
    """
    if not calls:
        return calls
    prompt = [_plain(source) for source in _sources(request)]
    regions = {call.end: call for call in reversed(calls)}  # the first call of a region begins where the region does

    def is_echo(call: TextCall) -> bool:
        """Return whether a region, by its first call, stands in the prompt."""
        # With tags the whole region must stand in the prompt; without them what was read as calls.
        quote = _plain(text[call.start : call.end] if call.is_certain else call.source)
        return len(quote) >= _SHORTEST_QUOTE and any(quote in source for source in prompt)

    echoes = {end for end, first in regions.items() if is_echo(first)}
    made = [call for call in calls if call.end not in echoes]
    if made and _calls_properly(request) and _BLOCK_EDGE.sub("", remove_calls(text, calls)).strip():
        made = [call for call in made if not _is_in_block(text, call)]
    return made


_ECHO: Final = 200
"""Characters of the prompt at the beginning of an answer that show that it repeats the prompt."""
_BEFORE_ECHO: Final = 40
"""Characters that may stand before them, such as the word for a role."""
_ROLE: Final = re.compile(r"\s*(?:[#<\[|]*\s*)?(?:system|user|assistant|human|developer)\b\W*", re.IGNORECASE)
"""Line that only says who speaks."""


def without_echo(text: str, request: ModelRequest) -> str:
    """Return an answer without the prompt that it begins with: a model that only goes on with a text repeats what it was given."""
    if len(text) < _ECHO:
        return text
    begin = _beginning(request.system[: 4 * _ECHO])
    if len(begin) < _ECHO or begin not in _plain(text[: 4 * (_ECHO + _BEFORE_ECHO)])[: _ECHO + _BEFORE_ECHO]:
        return text
    prompt = "\n".join(map(_plain, _sources(request)))
    lines = text.splitlines(keepends=True)
    # The answer begins with the first line that does not stand in the prompt.
    for number, line in enumerate(lines):
        if _plain(line) not in prompt and not _ROLE.fullmatch(line):
            return "".join(lines[number:])
    return ""


@lru_cache(maxsize=16)
def _beginning(prompt: str) -> str:
    """Return the beginning of a prompt as answers are compared with it; most answers are to one of few prompts."""
    return _plain(prompt)[:_ECHO]


def _sources(request: ModelRequest) -> Iterator[str]:
    """Yield the texts of the prompt that others than the model have written."""
    yield request.system
    for turn in request.turns:
        if isinstance(turn, UserTurn):
            yield turn.text
            yield from (result.content for result in turn.results)


def _plain(text: str) -> str:
    """Return the text without what escaping or laying it out may change."""
    text = _CODED.sub(lambda match: chr(int(match[1], 16)), html.unescape(text))
    return _LAYOUT.sub("", text)


def _calls_properly(request: ModelRequest) -> bool:
    """Return whether the model has made a call in this conversation that its server has read."""
    turns = (turn for turn in request.turns if isinstance(turn, AssistantTurn))
    return any(not call.id.startswith(TEXT_CALL) for turn in turns for call in turn.calls)


def _is_in_block(text: str, call: TextCall) -> bool:
    """Return whether a call stands in a code block."""
    before = text[: call.start]
    return text.startswith(("```", "~~~"), call.start) or len(_BLOCK_EDGE.findall(before)) % 2 == 1
