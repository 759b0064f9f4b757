"""Chat commands: which first words are commands, in which lane they wait, and what a word that is none is answered with.

Commands of the control lane pass the queue, since they are needed while the agent is busy. Those of the main lane change the
conversation, so they wait for their turn like any message.

People come from other agents and type what a command is called there. Where we have the same under another name, that name either
works as well (COMMAND_ALIASES), or the answer names ours (OTHER_NAMES).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from pegasus.conversation import sanitize_for_prompt
from pegasus.host import command_name

LEAVING_COMMANDS: Final = ("/exit", "/quit")
"""Commands of the terminal that end the chat. They are not sent."""
COPY: Final = "/copy"
"""Command of the terminal that copies an answer. It is not sent."""
CONTROL_COMMANDS: Final = frozenset(
    {
        "/stop",
        "/help",
        "/status",
        "/tasks",
        "/pause",
        "/continue",
        "/usage",
        "/context",
        "/undo",
        "/model",
        "/speech",
        "/persona",
        "/pair",
        "/skills",
        "/approvals",
        "/approve",
        "/deny",
    }
)
"""Commands that wait in the control lane."""
CONVERSATION_COMMANDS: Final = frozenset({"/new", "/compact", "/resume", "/retry", "/rename"})
"""Commands that change the conversation, or are about the one that it is in their turn. They wait in the main lane."""
COMMAND_ALIASES: Final[Mapping[str, str]] = MappingProxyType({"/clear": "/new", "/cost": "/usage"})
"""Second names of commands. Their answers say what the command is called."""
COMMANDS: Final = CONTROL_COMMANDS | CONVERSATION_COMMANDS | COMMAND_ALIASES.keys()
"""All first words that are commands."""
_RUN: Final = "Write what is to be run, as in “run make test”: a background task does it."
OTHER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/?": "/help",
        "/abort": "/stop",
        "/accept": "/approve",
        "/add": "@file",
        "/add-dir": "pegasus chat --folder",
        "/again": "/retry",
        "/agents": "/tasks",
        "/allow": "/approve",
        "/allowed-tools": "The rules are [[policy.rules]] of the settings; /approvals lists what waits for your yes.",
        "/allowlist": "/pair",
        "/attach": "@file",
        "/auth": "pegasus init",
        "/back": "/undo",
        "/background": "/tasks",
        "/backup": "pegasus backup",
        "/bash": _RUN,
        "/bashes": "/tasks",
        "/branch": "/resume",
        "/btw": "Just write it: the conversation goes on while tasks work.",
        "/budget": "/usage",
        "/bye": "/exit",
        "/cancel": "/stop",
        "/cd": "pegasus chat --folder",
        "/chat": "/resume",
        "/checkpoint": "/undo",
        "/commands": "/help",
        "/compaction": "/compact",
        "/compress": "/compact",
        "/condense": "/compact",
        "/config": "pegasus config",
        "/credits": "/usage",
        "/cron": "pegasus cron",
        "/ctx": "/context",
        "/diff": "`pegasus chat --folder PATH` shows each edit of a file as a diff, and /undo takes it back.",
        "/doctor": "pegasus doctor",
        "/dream": "pegasus memory",
        "/edit": "Ctrl-X Ctrl-E",
        "/editor": "Ctrl-X Ctrl-E",
        "/effort": "pegasus config set models.effort high",
        "/elevated": "Rules ([[policy.rules]] of the settings) say what needs no yes; /approvals lists what waits for one.",
        "/end": "/exit",
        "/exec": _RUN,
        "/export": "pegasus sessions show",
        "/export-session": "pegasus sessions show",
        "/fast": "/model",
        "/file": "@file",
        "/forget": "/undo",
        "/fork": "/resume",
        "/h": "/help",
        "/health": "/status",
        "/history": "/resume",
        "/hooks": "Messages from outside are [hooks.NAME] of the settings, rules about calls of tools [[policy.rules]].",
        "/id": "/pair",
        "/image": "@file",
        "/import": "pegasus import",
        "/info": "/status",
        "/init": "What Claude Code keeps in CLAUDE.md stands in AGENTS.md of the workspace; `pegasus init` chooses the model.",
        "/interrupt": "/stop",
        "/jobs": "/tasks",
        "/kill": "/stop",
        "/limits": "/usage",
        "/list": "/resume",
        "/load": "/resume",
        "/login": "pegasus init",
        "/logout": "/exit",
        "/logs": "pegasus logs",
        "/mcp": "pegasus mcp",
        "/memory": "pegasus memory",
        "/mention": "@file",
        "/models": "/model",
        "/name": "/rename",
        "/new-chat": "/new",
        "/new-session": "/new",
        "/onboard": "pegasus init",
        "/open": "/resume",
        "/output-style": "/persona",
        "/pairing": "/pair",
        "/paste": "@file",
        "/permissions": "The rules are [[policy.rules]] of the settings; /approvals lists what waits for your yes.",
        "/personality": "/persona",
        "/ping": "/status",
        "/plan": "Ask for a plan first; /approvals lists what waits for your yes, and /undo takes back edits of files.",
        "/plugin": "pegasus mcp",
        "/plugins": "pegasus mcp",
        "/provider": "/model",
        "/ps": "/tasks",
        "/q": "/exit",
        "/queue": "/status",
        "/read": "@file",
        "/read-only": "@file",
        "/reasoning": "pegasus config set agent.show_reasoning true",
        "/redo": "/retry",
        "/regen": "/retry",
        "/regenerate": "/retry",
        "/reject": "/deny",
        "/reload": "pegasus reload",
        "/remind": "pegasus cron",
        "/reminder": "pegasus cron",
        "/reminders": "pegasus cron",
        "/rerun": "/retry",
        "/reset": "/new",
        "/restart": "/new",
        "/restore": "/undo",
        "/revert": "/undo",
        "/rewind": "/undo",
        "/rollback": "/undo",
        "/run": _RUN,
        "/sandbox": "The walls of commands are [sandbox] of the settings; `pegasus doctor` says how they stand.",
        "/save": "/resume",
        "/schedule": "pegasus cron",
        "/search": "pegasus memory search",
        "/session": "/resume",
        "/sessions": "/resume",
        "/set": "pegasus config",
        "/settings": "pegasus config",
        "/setup": "pegasus init",
        "/sh": _RUN,
        "/shell": _RUN,
        "/skill": "/skills",
        "/soul": "/persona",
        "/spend": "/usage",
        "/start": "/help",
        "/stats": "/usage",
        "/subagents": "/tasks",
        "/summarize": "/compact",
        "/summary": "/compact",
        "/switch": "/model",
        "/system": "/persona",
        "/system-prompt": "/persona",
        "/task": "/tasks",
        "/terminal-setup": "Nothing is to be set up: Alt-Enter, Ctrl-J, or a \\ before Enter makes a new line.",
        "/theme": "The colours are those of your terminal; NO_COLOR=1 is without.",
        "/think": "pegasus config set models.effort high",
        "/threads": "/resume",
        "/title": "/rename",
        "/todo": "/tasks",
        "/todos": "/tasks",
        "/tokens": "/context",
        "/tools": "pegasus mcp",
        "/trace": "pegasus trace",
        "/trust": "/approvals",
        "/try-again": "/retry",
        "/upload": "@file",
        "/users": "/pair",
        "/verbose": "pegasus tasks follow",
        "/version": "pegasus --version",
        "/vim": "In a terminal Ctrl-X Ctrl-E opens $EDITOR.",
        "/voice": "/speech",
        "/whoami": "/pair",
        "/window": "/context",
        "/wipe": "/new",
        "/workspace": "pegasus chat --folder",
        "/yolo": "Rules ([[policy.rules]] of the settings) say what needs no yes; /approvals lists what waits for one.",
    }
)
"""Commands of other agents (Claude Code, Codex, Gemini CLI, aider, OpenClaw, nanobot, Hermes, Open WebUI, Ollama), and their names
here: of a command, a key, or a command of the command line; or a sentence about what to do instead."""

COMMAND_WITHIN: Final = 1_000
"""Characters of a message in which a command and its argument have to stand. Every message is looked at, and some have megabytes."""
_COMMAND_NAME: Final = re.compile(r"/(?:[a-z][a-z0-9_-]{0,63}|\?)(?=\s|\Z)")
"""Command at the beginning of a text. The length is bounded as that of skills is."""
_NEAR: Final = 2
"""Similar commands that an answer names."""
_LIKENESS: Final = 0.7
"""Share of letters that a similar command has in common. With less, short commands are similar to most others."""


def typed_command(text: str) -> str | None:
    """Return the command at the beginning of a message as it was typed, in lower case; None if there is none.

    Arguments after the first space do not matter, nor does case, nor do invisible characters, which copying from a web page
    often adds.
    """
    if "/" not in text:
        return None
    word, *_ = sanitize_for_prompt(text[:COMMAND_WITHIN]).split(None, 1) or ("",)
    word = word.lower()
    return word if word in COMMANDS else None


def command_of(text: str) -> str | None:
    """Return the command that the message is ("/stop"), by its first name ("/new" for "/clear"); None if it is none."""
    word = typed_command(text)
    return None if word is None else COMMAND_ALIASES.get(word, word)


def lane_of(text: str) -> str:
    """Return the lane that a message with this text waits in: "control" or "main"."""
    return "control" if command_of(text) in CONTROL_COMMANDS else "main"


def alias_note(text: str) -> str:
    """Return the sentence about a command that was called by its second name, "" for any other message.

    >>> alias_note("/clear")
    '(/clear is /new.)'
    """
    word = typed_command(text) or ""
    return f"({word} is {COMMAND_ALIASES[word]}.)" if word in COMMAND_ALIASES else ""


def find_unknown(text: str, known: Collection[str]) -> str | None:
    """Return the command that a text begins with if it is none of `known`, else None.

    >>> find_unknown("/staus now", ["/status", "/stop"])
    '/staus'

    known: names with their slash. `_` stands for `-` too, since some services know no `-` in commands.
    """
    found = _COMMAND_NAME.match(text)
    if found is None or found[0] in known or found[0].replace("_", "-") in known:
        return None
    return found[0]


def describe_unknown(name: str, known: Collection[str]) -> str:
    """Return the answer to a command that does not exist, with what it is called here, or else with the known ones like it.

    >>> describe_unknown("/staus", ["/status", "/stop"])
    'There is no command /staus. Did you mean /status? /help lists all; a blank in front sends it as text.'

    The terminal obeys LEAVING_COMMANDS and COPY itself. They come here with words behind them, or from another channel.
    """
    if name in LEAVING_COMMANDS:
        return f"{name} leaves the chat in a terminal, with nothing behind it; a blank in front sends it as text."
    if name == COPY:
        return f"{name} copies an answer in a terminal, {name} 2 the one before it; a blank in front sends it as text."
    return f"There is no command {name}.{_guess(name, known)} /help lists all; a blank in front sends it as text."


def _guess(name: str, known: Collection[str]) -> str:
    """Return the sentence about what was probably meant, "" if nobody can tell."""
    ours = OTHER_NAMES.get(name.replace("_", "-"), "")
    if ours.startswith("pegasus "):
        ours = f"On the command line `{ours}` does that."
    if ours.endswith("."):
        return f" {ours}".replace("`pegasus ", f"`{command_name()} ")
    if ours and not ours.startswith("/"):
        what = "attaches a file" if ours.startswith("@") else "opens an editor"
        return f" In a terminal {ours} {what}."
    if ours in known or ours in LEAVING_COMMANDS:
        return f" Did you mean {ours}?"
    begin_alike = sorted(each for each in known if each.startswith(name))
    near = [*begin_alike, *get_close_matches(name, sorted(known), n=_NEAR, cutoff=_LIKENESS)]
    near = list(dict.fromkeys(near))[:_NEAR]
    return f" Did you mean {' or '.join(near)}?" if near else ""
