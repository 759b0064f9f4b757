"""Completion: what may follow the text before the cursor, as pure functions, and asking the agent for it.

    /st              commands and skills
    /model anth      models
    /tasks show 3    tasks, by number or description
    see @src/ma      files

The agent says what there is (`Suggestions`); until it has, only the chat's own commands are offered. A choice replaces the last word
and nothing else, and nothing is ever sent by it: Enter sends what stands on the line.

`/exit` is always the last choice, so that a Tab too many does not end the chat.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import attrs

from pegasus.access import APPROVE, DENY
from pegasus.client import ClientError, Conversation
from pegasus.messages import Json

OWN_COMMANDS: Final[Mapping[str, str]] = {
    "/copy": "copy the last answer; /copy 2 the one before it",
    "/exit": "leave the chat (also /quit)",
}
"""Commands of the chat itself, with their descriptions."""
ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "/tasks": {"show": "tell more about a task", "cancel": "end a task"},
    "/speech": {
        "auto": "as the model shows it needs",
        "monologue": "only what it sends with reply is said",
        "direct": "all it writes is said",
    },
    "/approvals": {"revoke": "end what was allowed for later calls"},
    "/persona": {"accept": "accept a proposal", "reject": "reject a proposal"},
    "/skills": {"accept": "accept a skill of the workspace as it is now"},
}
"""First words that may follow a command."""
REFRESH_SECONDS: Final = 3.0
"""Seconds that the agent may take for an answer that nobody waits for."""
MOST_CHOICES: Final = 50
"""Choices that are offered; a longer menu is not read."""
_MOST_ENTRIES: Final = 5000
"""Entries of a folder that are looked at."""
_FILE: Final = re.compile(r"""(?<!\S)@(?:"([^"\n]*)|'([^'\n]*)|([^\s"']*))\Z""")
"""Mention of a file that is being typed."""


@attrs.frozen
class Suggestions:
    """Names that the agent understands, as it has last said."""

    commands: Mapping[str, str] = attrs.field(factory=dict)
    """Descriptions of commands by name, with the slash."""
    skills: Mapping[str, str] = attrs.field(factory=dict)
    """The same of skills that a person may call."""
    models: tuple[str, ...] = ()
    """Models that can be chosen."""
    tasks: tuple[tuple[str, str], ...] = ()
    """Number and description of the latest tasks, newest first."""
    questions: tuple[tuple[str, str], ...] = ()
    """Id and tool of each question that waits for a yes or no."""

    @property
    def names(self) -> dict[str, str]:
        """Everything that a message may begin with, in the order in which it is offered; a command hides a skill of its name."""
        found = {**self.commands}
        for table in (self.skills, OWN_COMMANDS):
            found |= {name: text for name, text in table.items() if name not in found}
        return found


@attrs.frozen
class MenuEntry:
    """Something to choose."""

    text: str
    """Text that is put in."""
    replaces: int
    """Characters before the cursor that it takes the place of."""
    meaning: str = ""
    """Description beside it, "" for none. It is neutralised only when it is shown."""


async def ask_suggestions(conversation: Conversation) -> Suggestions | None:
    """Return the names that may be typed; None if the agent does not say so in time, or is of another version.

    The two calls are made one after the other, over the connection of the chat. Nothing is raised: the menu is a help.
    """
    with suppress(ClientError):
        completions = await conversation.call("completions", timeout=REFRESH_SECONDS)
        tasks: Json = {}
        with suppress(ClientError):  # the task system starts later than the agent
            tasks = await conversation.call("tasks.list", timeout=REFRESH_SECONDS)
        if isinstance(completions, Mapping) and isinstance(tasks, Mapping):
            return parse_suggestions(completions, tasks)
    return None


def parse_suggestions(completions: Mapping[str, Json], tasks: Mapping[str, Json]) -> Suggestions:
    """Return what the control calls `completions` and `tasks.list` have answered. What makes no sense is left out."""

    def entries(answer: Mapping[str, Json], key: str) -> list[Mapping[str, Json]]:
        """Return the objects in a list of the answer; [] if there is none."""
        found = answer.get(key)
        return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []

    def described(key: str, slash: str) -> dict[str, str]:
        """Return descriptions by name, each name with this slash in front."""
        return {f"{slash}{entry.get('name')}": str(entry.get("description", "")) for entry in entries(completions, key)}

    models = completions.get("models")
    return Suggestions(
        commands=described("commands", ""),
        skills=described("skills", "/"),
        models=tuple(str(model) for model in models) if isinstance(models, list) else (),
        tasks=tuple(
            (str(task.get("number") or task.get("taskId")), str(task.get("description", "")))
            for task in reversed(entries(tasks, "tasks"))
        ),
    )


def may_have_choices(before: str) -> bool:
    """Return whether there may be choices for the text before the cursor, without looking for them."""
    return before.startswith("/") or _FILE.search(before) is not None


def choices(before: str, after: str, known: Suggestions, folder: Path | None = None) -> list[MenuEntry]:
    """Return what may stand in the place of the last word before the cursor, the best first.

    before, after: the text on both sides of the cursor. folder: what relative paths start from. Reads a folder for a file's name.
    """
    # Within a word nothing is offered: the rest of the word would stand behind the choice.
    if after and not after[0].isspace():
        return []
    if found := _FILE.search(before):
        return list(islice(_files(found, folder or Path.cwd()), MOST_CHOICES))
    if not before.startswith("/") or after.strip() or "\n" in before:
        return []
    command, *words = before.split(" ")
    if not words:
        return _matching(command, known.names.items())
    word, command = words[-1], command.lower()
    if command == "/model" and len(words) == 1:
        return _matching(word, [*((model, "") for model in known.models), ("default", "the model of the settings")])
    if command == "/tasks" and len(words) == 2 and words[0] in ("show", "cancel"):
        return _matching(word, known.tasks, by_meaning=True)
    if command in ("/pause", "/continue") and len(words) == 1:
        return _matching(word, known.tasks, by_meaning=True)
    if command in (APPROVE, DENY) and len(words) == 1:
        return _matching(word, known.questions, by_meaning=True)
    if len(words) == 1:
        return _matching(word, ARGUMENTS.get(command, {}).items())
    return []


def _matching(typed: str, offered: Iterable[tuple[str, str]], *, by_meaning: bool = False) -> list[MenuEntry]:
    """Return what begins like the typed text, then what has a part that does; what is typed in full is left out.

    by_meaning: a word of the description counts as a part, too.
    """
    wanted = typed.lower().lstrip("/")
    begins: list[MenuEntry] = []
    within: list[MenuEntry] = []
    for name, meaning in offered:
        plain = name.lower().lstrip("/")
        if plain == wanted:
            continue
        if plain.startswith(wanted):
            begins.append(MenuEntry(name, len(typed), meaning))
        elif wanted and re.search(
            rf"[-_/: .]{re.escape(wanted)}", f"{plain} {meaning.lower()}" if by_meaning else plain
        ):
            within.append(MenuEntry(name, len(typed), meaning))
    found = begins + within
    return sorted(found, key=lambda choice: choice.text in OWN_COMMANDS)[:MOST_CHOICES]


def _files(found: re.Match[str], folder: Path) -> Iterator[MenuEntry]:
    """Yield the files and folders that begin like the typed path, folders first. A name with blanks is put into quotes."""
    typed = next((group for group in found.groups() if group is not None), "")
    head, _, begin = typed.rpartition("/")
    head = f"{head}/" if "/" in typed else ""
    try:
        parent = folder / Path(head or ".").expanduser()
        with os.scandir(parent) as entries:
            listed = [(not entry.is_dir(), entry.name) for entry in islice(entries, _MOST_ENTRIES)]
    except (OSError, RuntimeError, ValueError):
        return
    for is_file, name in sorted(listed):
        if not name.lower().startswith(begin.lower()) or (name.startswith(".") and not begin.startswith(".")):
            continue
        # A name that cannot be typed between quotation marks, or would change the screen, is not offered.
        if not name.isprintable() or '"' in name:
            continue
        path = f"{head}{name}{'' if is_file else '/'}"
        if " " in path or "'" in path:
            # A folder's quotation mark is left open, since the name of a file follows.
            path = f'"{path}"' if is_file else f'"{path}'
        yield MenuEntry(f"@{path}", len(found[0]))
