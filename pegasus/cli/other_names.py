"""Names that commands and options have in other agents (Claude Code, Codex, OpenClaw, Hermes), and what they are called here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

MEANT: Final = {
    name: command
    for command, names in {
        "init": "auth channel channels configure login model models onboard setup",
        "run": "gateway serve start up",
        "service": "autostart",
        "chat": "attach continue repl tui",
        "send": "agent ask exec message prompt",
        "open": "dashboard ui web",
        "approvals": "allow approve deny permissions",
        "pair": "pairing",
        "sessions": "conversations history resume session",
        "cron": "jobs schedule",
        "mcp": "connectors extensions plugin plugins tools",
        "config": "env settings",
        "persona": "identity soul",
        "doctor": "health security",
        "reload": "restart",
        "update": "upgrade",
        "backup": "export",
        "import": "migrate",
        "logs": "log",
        "--help": "help",
        "--version": "version",
        "remove": "delete rm",
        "resume": "enable",
        "pause": "disable",
    }.items()
    for name in names.split()
} | {
    "-c": "chat",
    "--continue": "chat",
    "-r": "sessions",
    "--resume": "sessions",
    "-p": "send",
    "--print": "send",
    "-m": "--set models.default=<provider>/<model>",
    "--model": "--set models.default=<provider>/<model>",
}
"""Commands and options that people look for under the name that they have in other programs."""

_INSTEAD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "agents": "Another agent is another home: --profile NAME",
        "backup create": "FILE is what is written, such as pegasus.tar.zst; `backup ./create` writes one of that name",
        "channels list": "`doctor` says how each channel is, and so does the page (`open`)",
        "channels status": "`doctor` says how each channel is, and so does the page (`open`)",
        "config edit": "The file is pegasus.toml in the home; `config set KEY VALUE` changes one key of it",
        "config list": "Did you mean 'show'?",
        "cron add --message": "Did you mean '--prompt'?",
        "cron edit": "Remove the job, and add it anew",
        "cron runs": "`tasks list` has the tasks that ran; what jobs said is in their conversations (`sessions`)",
        "cron status": "Did you mean 'list'?",
        "daemon": "Did you mean 'run' (in this terminal) or 'service' (always)?",
        "daemon install": "Did you mean 'service install'?",
        "daemon status": "Did you mean 'service status'?",
        "doctor --deep": "It asks the model and the channels always",
        "doctor --fix": "It changes nothing; below each fault it says what to do",
        "gateway install": "Did you mean 'service install'?",
        "gateway restart": "Did you mean 'reload'?",
        "gateway status": "Did you mean 'service status'?",
        "gateway stop": "Ctrl-C ends an agent in its terminal; of a service it is `systemctl --user stop pegasus`",
        "gateway uninstall": "Did you mean 'service uninstall'?",
        "hooks": "Messages from outside are [hooks.NAME] in pegasus.toml, rules about calls of tools are [[policy.rules]]",
        "mcp remove": "Delete its section, [mcp.servers.NAME], from pegasus.toml",
        "memory index": "The index is always up to date",
        "memory status": "Did you mean 'list'?",
        "models set": "`config set models.default <provider>/<model>` does that, and /model in a chat",
        "models list": "/model in a chat shows what can be chosen",
        "send --json": "The replies are printed as they are; programs take the API: `open`, docs/http.md",
        "send --output-format": "The replies are printed as they are; programs take the API: docs/http.md",
        "sessions export": "Did you mean 'show'?",
        "skills add": "Did you mean 'install'?",
        "skills info": "Did you mean 'check'?",
        "skills search": "There is no directory of skills; `skills install` takes those of a folder, an archive or a git repository",
        "status --all": "It shows everything; `doctor` looks for faults",
        "status --deep": "Did you mean 'doctor'?",
        "stop": "Ctrl-C ends an agent in its terminal; of a service it is `systemctl --user stop pegasus`",
        "uninstall": "`service uninstall` removes the service; your package manager removes the program, and the home stays",
    }
)
"""Sentences about what has no counterpart of one word, by the words that are typed."""


def say_instead(typed: Sequence[str]) -> str:
    """Return the sentence about what was typed: a command, a command of a group, or a command with an option; "" for none.

    >>> say_instead(["cron", "add", "--message"])
    "Did you mean '--prompt'?"
    """
    return _INSTEAD.get(" ".join(typed), "")
