"""The background commands that a task has lost: those that its conversation tells of, and that a former actor of it ran.

Background commands end with the actor of their task (`pegasus.sandbox.background`), and nothing of them is stored but
the results of the calls in the conversation. When a task goes on with a new actor, after a restart or a suspension, the model would
believe that its server still runs. So it is told once, by a message behind the conversation, which is recorded with the next thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pegasus.conversation import Entry
from pegasus.wire import decode_json

LOST_COMMANDS: Final = "lost_commands"
"""Type, in the metadata of an entry, of the message that names lost commands. Its `ids` are theirs."""

_TOOLS: Final = ("command_start", "command_output", "command_input", "command_stop")


def lost_commands(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the command lines of the background commands that ran when the last of these results was given, by id.

    Those that a result showed as ended, and those that the model was told of already, are not among them.
    """
    found: dict[str, str] = {}
    for _, name, result in _told_commands(entries):
        if result.get("running"):
            found[name] = str(result.get("command", ""))
        else:
            found.pop(name, None)
    return found


def all_commands(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the command lines of all background commands that the conversation tells of, by id."""
    told = _told_commands(entries)
    return {name: str(result.get("command", "")) for tool, name, result in told if tool == "command_start"}


def _told_commands(entries: Iterable[Entry]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield what the model was told about each command, in order: the tool that told it, the command's id, and the result.

    Of a command that was lost, the tool is "" and the result {}.
    """
    tools: dict[str, str] = {}
    for entry in entries:
        tools.update((call.id, call.name) for call in entry.calls)
        tool = tools.get(entry.call_id or "", "")
        if entry.metadata.get("type") == LOST_COMMANDS:
            ids = entry.metadata.get("ids")
            yield from (("", str(name), {}) for name in (ids if isinstance(ids, list) else ()))
        elif entry.role == "tool" and tool in _TOOLS:
            result = _parse(entry.content)
            if isinstance(name := result.get("commandId"), str):
                yield tool, name, result


def lost_commands_message(lost: Mapping[str, str], at: int) -> Entry:
    """Return the message that tells the model of its lost commands. at: wall clock, ms."""
    lines = "".join(f"\n- {name}: {line}" for name, line in lost.items())
    text = f"[System] These background commands have ended, because this task was interrupted. Start again what you need:{lines}"
    return Entry(at, "user", text, metadata={"type": LOST_COMMANDS, "ids": list(lost)})


def _parse(content: str) -> Mapping[str, Any]:
    """Return the result of a call; {} if it is no object, such as an error or a result that was cut."""
    try:
        result = decode_json(content)
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}
