"""The values that a chat begins with, and the first lines that it shows: with whom one talks, something to try, and the way out.

`ChatConfig` is all that a chat knows about the agent besides what comes over the connection. The command that opens the
chat fills it in: it knows where the files are, and whether it has started the agent itself. The two functions are asked
again each time, since other chats come and go and the settings may be reloaded.

The greeting has three lines, so that it is read. Each of them says something that a newcomer would look for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from pegasus.messages import ChannelInfo
from pegasus.terminal.leaving import LeaveRules

TRY: Final = "Try “what can you do?” or “remember that …”."
"""Things to try first, in the greeting."""
TRY_STAND_IN: Final = "Try “demo” or “remember that I like tea”."
"""The same where the built-in stand-in answers by fixed rules."""
MANNERS: Final = {"direct": "which answers directly", "monologue": "which speaks when it has something to say"}
"""Ways of speaking, for the greeting."""


@attrs.frozen
class ChatConfig:
    """Values of a chat that its caller knows: address, files, and facts about the daemon."""

    channel: ChannelInfo
    """Address of the conversation."""
    history: Path
    """File of the typed messages."""
    max_frame_bytes: int
    """Size above which the gateway refuses a message."""
    folder: str = ""
    """Folder that the tasks of this chat work in, a real path; "" = the workspace."""
    model: str = ""
    """Model of the agent, for the greeting; "" = not known."""
    speech: str = ""
    """Way in which the model speaks, a key of MANNERS, for the greeting; "" = not known."""
    agent_runs: Callable[[], bool] = lambda: True
    """Returns whether a process of the agent is there, of which a chat that has lost the connection is told. Must not wait."""
    start_command: str = "pegasus"
    """Command that starts the agent again."""
    leave_rules: Callable[[], LeaveRules] = LeaveRules
    """Returns what leaving does at this moment. Called from any thread; must not wait."""


def greeting(agent: str, config: ChatConfig) -> str:
    """Return the first lines of a chat. agent: the name from the gateway's welcome."""
    model = f" ({config.model})" if config.model else ""
    example = TRY_STAND_IN if config.model.startswith("offline/") else TRY
    manner = f", {MANNERS[config.speech]}" if config.speech in MANNERS else ""
    leaving = f"stops {agent}" if config.leave_rules().stops_agent else f"leaves, and {agent} goes on"
    work = f"\nIts tasks work in {config.folder}." if config.folder else ""
    return f"Talking with {agent}{model}{manner}.{work}\n{example}\n/help shows what there is, Ctrl-D {leaving}."


def gone_text(agent: str, config: ChatConfig, *, was_stopped: bool) -> str:
    """Return the notice of a chat whose agent does not run any more. was_stopped: it has ended in an orderly way."""
    end = "was stopped" if was_stopped else "has ended unexpectedly"
    return f"{agent} {end}. `{config.start_command}` in another terminal starts it again, and this chat goes on; Ctrl-D leaves."
