"""Texts, times and messages of other agents in the form that they have here.

Whatever looks like a key is masked on the way: an agent's notes and conversations hold keys more often than people think.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from pegasus.conversation import Entry, clean_text, sanitize_for_prompt, user_content
from pegasus.messages import ChannelInfo, Metadata
from pegasus.models import ToolCall
from pegasus.outside import OUTSIDE, Outside
from pegasus.redaction import Redactor

LONGEST_MESSAGE: Final = 1 << 20
"""Characters of a message; the rest is cut."""
LARGEST_PART: Final = 20_000
"""Bytes of a file of memory. A longer text becomes several."""
_FROM_FILE: Final[Metadata] = {OUTSIDE: [Outside.FILE.value]}

_redactor = Redactor()


def masked(text: str) -> str:
    """Return a text without characters that cannot be seen, and without whatever has the format of a key."""
    return _redactor.apply(sanitize_for_prompt(text))


def shown_name(value: object) -> str:
    """Return an id or a name of a foreign home for the report: one short line."""
    return " ".join(masked(str(value)).split())[:80]


def split_text(text: str) -> list[str]:
    """Return a text in parts that a file of memory can hold, cut between paragraphs where there are any, else between lines."""
    parts: list[str] = []
    room = LARGEST_PART
    for line in _short_lines(text.strip()):
        size = len(line.encode())
        if parts and room - size >= 0 and not (line.startswith("#") and room < LARGEST_PART // 4):
            parts[-1] += line
            room -= size
        else:
            parts.append(line)
            room = LARGEST_PART - size
    return [part.strip() for part in parts if part.strip()]


def _short_lines(text: str) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), LARGEST_PART // 4):
            yield line[start : start + LARGEST_PART // 4]


def time_of(value: object) -> int | None:
    """Return a time in ms: of ISO 8601, of seconds or of milliseconds since the epoch; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        ms = value if abs(value) > 1e11 else value * 1000
        return int(ms) if 0 <= ms < 4e12 else None
    if isinstance(value, str):
        try:
            return int(datetime.fromisoformat(value.strip()).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            return None
    return None


def json_lines(text: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield the object of each line; None for a line that is none."""
    for line in text.splitlines():
        if line.strip():
            yield json_object(line)


def json_object(text: str) -> Mapping[str, Any] | None:
    """Return a JSON object; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text_of(content: object) -> tuple[str, int]:
    """Return the text of a message's content, which is a text or a list of blocks, and the number of blocks that are no text."""
    if isinstance(content, str):
        return content, 0
    if not isinstance(content, list):
        return "", int(content is not None)
    texts, others = [], 0
    for block in content:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif not (isinstance(block, dict) and block.get("type") in ("thinking", "toolCall", "tool_use")):
            others += 1
    return "\n".join(texts), others


def calls_of(calls: object) -> tuple[ToolCall, ...]:
    """Return tool calls as other agents keep them: as a list of `{id, name, arguments}`, or of `{id, function: {…}}`."""
    found = []
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        if not isinstance(call, dict):
            continue
        of: Any = call["function"] if isinstance(call.get("function"), dict) else call
        name, given = of.get("name"), of.get("arguments", of.get("input"))
        if isinstance(given, str):
            given = json_object(given)
        if isinstance(name, str) and name:
            id = call.get("id")
            arguments = json_object(masked(json.dumps(given))) if isinstance(given, dict) else None
            found.append(ToolCall(id if isinstance(id, str) and id else f"c{number}", masked(name), arguments or {}))
    return tuple(found)


def entry_of(
    role: object, content: object, ts: int, channel: ChannelInfo, calls: object = None, call_id: object = None
) -> tuple[Entry | None, int]:
    """Return the entry of a message, None for one without a meaning here, and the number of its parts that are left out."""
    text, others = text_of(content)
    text = masked(text[:LONGEST_MESSAGE])
    match role:
        case "user" if text.strip():
            return Entry(ts, "user", user_content(text, channel), metadata=_FROM_FILE), others
        case "assistant" if text.strip() or calls:
            return Entry(ts, "assistant", clean_text(text), calls_of(calls), metadata=_FROM_FILE), others
        case "tool" | "toolResult" if isinstance(call_id, str) and call_id:
            return Entry(ts, "tool", text, call_id=masked(call_id), metadata=_FROM_FILE), others
    return None, others + (role not in ("user", "assistant", "tool", "toolResult", "system"))


def address_of(type: object, id: object, known: Iterable[str]) -> tuple[str, str]:
    """Return `<type>:<id>` of a chat and why a job cannot speak there; ("cli:main", reason) if it is not known."""
    if not (isinstance(type, str) and type and isinstance(id, str | int) and str(id)):
        return "cli:main", "it does not say in which chat it speaks"
    name = str(id).removeprefix("channel:").removeprefix("user:")
    if type not in known:
        return f"{type}:{name}", f"there is no channel {type} here; a bridge could be one"
    return f"{type}:{name}", ""
