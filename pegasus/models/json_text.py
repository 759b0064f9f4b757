"""JSON as models write it by hand: with comments, trailing commas, single quotes, and sometimes without its end.

Two questions are kept apart. Where a value ends is found by its brackets, so text behind it is never taken in, and a value without
an end is known to be cut off. Whether a value that has an end can be repaired is left to the package json_repair, which is imported
at the first value that is no strict JSON.

Arguments that are cut off are never completed, although json_repair would do it: half of a command or of a file is worse than none,
and the model is told to make the call again (`CUT_CALL`). Missing brackets at the very end are the one exception, and only where
something else shows that the text is whole (`parse_object` with `is_closed`).

    parse_arguments    arguments of a call in a provider's own field
    parse_object       arguments of a call that was written as text
    end_of_value       where a value within a text ends
    load_json          a value, repaired if that is cheap

Errors are returned as sentences for the model and not raised: a wrong call is an ordinary answer, which the model can correct.

Everything takes time in proportion to the text, since a text may be long and its author may be an attacker whom the model quotes. The
patterns give nothing back once they have matched it (`++`). Only json_repair is slower, so texts that it would need long for are not
given to it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import warnings
from typing import Any, Final, NoReturn

from pegasus.messages import Json, Metadata

CUT_CALL: Final = "the call was cut off before its end, so it was not carried out; make it again, shorter if it is long"
"""Error of a call whose end is missing, for the model."""

_LONGEST_REPAIR: Final = 200_000
"""Characters of JSON that are repaired."""
_MOST_REPAIRED: Final = 200
"""Strings and brackets of JSON that is repaired."""
_DEEPEST_REPAIRED: Final = 16
"""Levels of nesting of JSON that is repaired. The time for repairing grows with the cube of the depth at worst."""


def load_json(text: str) -> Json:
    """Return the value of a JSON text, repaired if needed; None if nothing can be made of it, or if it is nested too deeply."""
    try:
        value: Json = json.loads(text, strict=False)
    except RecursionError:
        return None
    except ValueError:
        # A text that is too expensive counts as broken; the model is told and can write it again.
        if not _is_cheap_to_repair(text):
            return None
        if (python := _python_value(text)) is not None:
            return python
        import json_repair  # late: only weak models need it

        try:
            repaired: Any = json_repair.loads(text, skip_json_loads=True)
        except (ValueError, RecursionError):
            return None
        # The package makes a text of anything, which is no repair.
        value = repaired if isinstance(repaired, dict | list) and not _has_lost_words(text, repaired) else None
    return None if _is_deeper_than(value, _DEEPEST) else value


def _python_value(text: str) -> Json:
    """Return the value of a text that is an object or list of Python's, which joins strings and marks raw ones; None if it is none."""
    # JSON alone has the escape: Python would keep its backslash. And Python would join what a forgotten comma leaves side by side.
    if "\\/" in text or ("[" in text and _SIDE_BY_SIDE.search(text)):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text.strip())
        # What JSON does not have, such as bytes and sets, is left to others.
        return json.loads(json.dumps(value, allow_nan=False)) if isinstance(value, dict | list) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _has_lost_words(text: str, repaired: Json) -> bool:
    """Return whether words of a text are missing in what was made of it. Half of a command may do something else."""
    kept = json.dumps(repaired, ensure_ascii=False) + json.dumps(repaired)
    words = _WORD.findall(_COMMENT.sub(lambda token: token[0] if token[0].startswith('"') else " ", text))
    known = {word.casefold() for word in _WORD.findall(kept)} | _LITERALS
    return any(word.casefold() not in known for word in words)


def _is_cheap_to_repair(text: str) -> bool:
    """Return whether repairing a text takes a few milliseconds at most. Nothing else runs meanwhile."""
    if len(text) > _LONGEST_REPAIR:
        return False
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(text)):
        # Strings and comments are single tokens, so brackets within them are not counted.
        depth += (token[0] in "{[") - (token[0] in "}]")
        if count >= _MOST_REPAIRED or depth > _DEEPEST_REPAIRED:
            return False
    return True


def json_or_text(value: str) -> Json:
    """Return the value of a strict JSON text, else the text."""
    try:
        parsed: Json = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed


_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|//[^\n]*+|/\*.*?(?:\*/|\Z)|[{}\[\]]|"', re.DOTALL)
"""Strings, comments and brackets of JSON; a lone quotation mark begins a string that does not end. A comment without an end is one
as well. So each character is looked at once, whatever the text."""
_COMMENT: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|//[^\n]*+|#[^\n]*+|/\*.*?(?:\*/|\Z)', re.DOTALL)
"""Strings and comments."""
_SIDE_BY_SIDE: Final = re.compile(r"[\"']\s*+[\"']")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_LITERALS: Final = frozenset({"true", "false", "none", "null", "undefined"})
"""Words that stand for values."""
_BETWEEN: Final = re.compile(r"(?:[\s,;]++|[A-Za-z_][\w.\-]*+(?:\[ARGS\])?)*+(?=[{\[])")
"""Text between two values of a list of calls. Nothing of it is given back, or a sentence would be split in every way."""
_OTHER_QUOTES: Final = re.compile(
    r'''([:,\[{]\s*+)("""|\'\'\'|`(?!``)|<\|"\|>|<escape>)(.*?)\2(?=\s*+(?:[,:}\]]|$))''', re.DOTALL
)
"""A string between the quotation marks of another language: of Python's long ones, of JavaScript's, of Gemma's."""
_PAIRS: Final = {"}": "{", "]": "["}
"""Opening bracket of each closing one."""


def end_of_value(text: str, start: int, stop: int = sys.maxsize) -> int | None:
    """Return the index behind the object or list that begins at `start`; None if it does not end before `stop`."""
    open_brackets: list[str] = []
    for token in _TOKEN.finditer(text, start, stop):
        mark = token[0]
        if mark in "{[":
            open_brackets.append(mark)
        elif mark in _PAIRS:
            # A closing bracket of the wrong kind: the value has no end that could be trusted.
            if not open_brackets or open_brackets.pop() != _PAIRS[mark]:
                return None
            if not open_brackets:
                return token.end()
        elif mark == '"':
            return None
    return None


def end_of_values(text: str, start: int, stop: int) -> int | None:
    """Return the index behind all objects and lists between two indexes; None if none begins there or one does not end."""
    end: int | None = None
    at = start
    while begin := _BETWEEN.match(text, at, stop):
        value_end = end_of_value(text, begin.end(), stop)
        if value_end is None:
            return None
        at = end = value_end
    return end


def ends_outside_text(text: str) -> bool:
    """Return whether all strings of a JSON text are closed, so that at most brackets are missing."""
    return all(token[0] != '"' for token in _TOKEN.finditer(text)) and text.rstrip().endswith(("}", "]"))


def name_in(text: str) -> str:
    """Return the tool that JSON which is cut off names; "" if it has not come so far."""
    found = re.match(r'[\s\[{]*"(?:name|tool|tool_name|function)"\s*:\s*"([^"]+)"', text)
    return found[1] if found else ""


# ------------------------------------------------------------------ arguments of tool calls

NAME_KEYS: Final = ("name", "tool", "tool_name", "function", "function_name", "action")
ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "kwargs", "params")
"""Keys of the name and of the arguments in the JSON of a call."""
_UNKNOWN: Final = "is not JSON"
"""End of the message about NaN and infinities, which have no meaning that could be repaired."""
_DEEPEST: Final = 200
"""Levels of nesting. Deeper values could exhaust the stack when they are written again."""
_JSON_KINDS: Final = {str: "a string", list: "a list", bool: "a boolean", int: "a number", float: "a number"}
"""Words for what the model has given in place of an object."""


def parse_arguments(raw: object, *, cut: str = "") -> tuple[Metadata, str | None]:
    """Return the arguments of a tool call, and an explanation for the model if they could not be read.

    raw: JSON text, or the value itself from servers that send it so. cut: why the answer ended early, if it did.
    """
    if isinstance(raw, str):
        # Some servers write an empty text within the text where there are none.
        if raw.strip() in ("", '""'):
            return {}, None
        text = raw
        try:
            raw = json.loads(text, parse_constant=_reject_constant)
        except RecursionError:
            return {}, "the arguments are nested too deeply"
        except ValueError as error:
            # An answer that ended early is not repaired, or a half argument would pass for a whole one.
            raw = None if cut or _UNKNOWN in str(error) else _repaired(text)
            if raw is None:
                return {}, f"the arguments are not valid JSON: {cut or error}"
        if isinstance(raw, str) and raw.lstrip().startswith("{"):  # an object within a string
            return parse_arguments(raw, cut=cut)
    if isinstance(raw, list) and raw and all(isinstance(item, dict) and item == raw[0] for item in raw):
        raw = raw[0]
    if raw is None:
        return {}, None
    if not isinstance(raw, dict):
        return {}, f"the arguments must be a JSON object, not {_JSON_KINDS.get(type(raw), type(raw).__name__)}"
    if _is_deeper_than(raw, _DEEPEST):
        return {}, "the arguments are nested too deeply"
    # A surrogate pair may have been cut between two pieces of the stream. Values are only rebuilt if one was
    # found.
    dumped = json.dumps(raw, ensure_ascii=False)
    repaired = join_surrogates(dumped)
    return (raw if repaired is dumped else json.loads(repaired)), None


def unwrap_arguments(arguments: Metadata, schema: Metadata) -> Metadata:
    """Return the arguments that a model wrote as a whole call (`{"name": …, "arguments": {…}}`) where only they belong."""
    known, extra = schema.get("properties"), {*arguments} - {*NAME_KEYS, "type", "id"}
    wrapped = arguments[next(iter(extra))] if len(extra) == 1 and extra <= {*ARGUMENT_KEYS, "properties"} else None
    is_own = not isinstance(known, dict) or not known or not known.keys().isdisjoint(arguments)
    return wrapped if isinstance(wrapped, dict) and not is_own else arguments


def _repaired(text: str) -> Json:
    """Return the only object of a text that is no strict JSON; None if there is none, if one is cut off, or if there are several.

    Comments, trailing commas and the like are removed, and so is what is too much: a code block around the object, brackets and
    special tokens behind it, an empty object before it, and the same object a second time.
    """
    text = _with_own_quotes(text)
    # No JSON begins with two brackets, so the first of them is one too many.
    text = _TOO_MANY.sub("{", text, count=1)
    objects: list[Json] = []
    empty: Json = None
    at = 0
    while len(objects) < _MOST_OBJECTS and (begin := text.find("{", at)) >= 0:
        end = end_of_value(text, begin)
        if end is None and text[begin:].strip("{ \t\r\n"):
            return None
        if end is None:
            break
        at, value = end, load_json(text[begin:end])
        if value is None:
            return None
        if value == {}:
            empty = value
        elif value not in objects:
            objects.append(value)
    return objects[0] if len(objects) == 1 else None if objects else empty


def _with_own_quotes(text: str) -> str:
    """Return a text that is no strict JSON with the quotation marks of JSON around its strings."""
    return _OTHER_QUOTES.sub(lambda found: found[1] + json.dumps(found[3], ensure_ascii=False), text)


_TOO_MANY: Final = re.compile(r"^\s*+(?:\{\s*+)+\{")
"""Brackets before the first object."""
_MOST_OBJECTS: Final = 2
"""Different objects from which on it is not known which one is meant."""


def parse_object(text: str, *, is_closed: bool) -> tuple[Metadata, str | None]:
    """Return the object that a text holds, repaired if needed; an error if it is cut off."""
    if is_closed and isinstance(only := _repaired(text), dict) and only:
        return parse_arguments(only)
    text = _with_own_quotes(text) if is_closed else text
    begin = text.find("{")
    # The text broke off before its object.
    if begin < 0 and not is_closed:
        return {}, CUT_CALL
    if begin < 0:
        return {}, "the arguments are not valid JSON" if text.strip() else None
    end = end_of_value(text, begin)
    if end is None and not (is_closed and ends_outside_text(text[begin:])):
        return {}, CUT_CALL
    value = load_json(text[begin:end])
    if not isinstance(value, dict):
        return {}, "the arguments are not valid JSON"
    return parse_arguments(value)


def _reject_constant(constant: str) -> NoReturn:
    """Raise ValueError for NaN and the infinities, which Python's parser takes and JSON does not have."""
    raise ValueError(f"{constant} {_UNKNOWN}")


def _is_deeper_than(value: object, limit: int) -> bool:
    """Walk the levels of the value one by one, without recursion."""
    level = [value]
    for _ in range(limit + 1):
        # Level by level, since a recursive walk would itself exhaust the stack.
        containers = [node for node in level if isinstance(node, dict | list)]
        if not containers:
            return False
        level = [child for node in containers for child in (node.values() if isinstance(node, dict) else node)]
    return True


def join_surrogates(text: str) -> str:
    """Return the text with surrogate pairs that arrived in two pieces joined; lone surrogates become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
