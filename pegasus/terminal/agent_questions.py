"""Questions that a chat asks the agent over its own connection: what may be typed, whether anything waits, who else is connected.

Each has a default for an agent that does not answer in time, is of another version, or is away: the chat works without the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from pegasus.client import ClientError, Conversation
from pegasus.messages import Json
from pegasus.terminal.completion import Suggestions, parse_suggestions

REFRESH_SECONDS: Final = 3.0
"""Seconds that the agent may take for an answer that nobody waits for."""
OTHERS_SECONDS: Final = 1.0
"""Seconds that it may take to say who else is connected, which a person who leaves waits for."""


async def ask_suggestions(conversation: Conversation) -> Suggestions | None:
    """Return the names that may be typed; None if the agent does not say so."""
    with suppress(ClientError):
        completions = await conversation.call("completions", timeout=REFRESH_SECONDS)
        tasks: Json = {}
        with suppress(ClientError):  # the task system starts later than the agent
            tasks = await conversation.call("tasks.list", timeout=REFRESH_SECONDS)
        if isinstance(completions, Mapping) and isinstance(tasks, Mapping):
            return parse_suggestions(completions, tasks)
    return None


async def is_nothing_waiting(conversation: Conversation) -> bool:
    """Return True if the agent says that no message of this conversation waits or is in work."""
    with suppress(ClientError):
        work = await conversation.call("conversation", timeout=REFRESH_SECONDS)
        return isinstance(work, Mapping) and not work.get("waiting")
    return False


async def count_other_clients(conversation: Conversation) -> int:
    """Return how many other chats are connected to the agent, of this conversation or others; 0 if it does not say so."""
    with suppress(ClientError):
        answer = await conversation.call("clients", timeout=OTHERS_SECONDS)
        clients = answer.get("clients") if isinstance(answer, Mapping) else None
        return max(0, len(clients) - 1) if isinstance(clients, Sequence) and not isinstance(clients, str) else 0
    return 0
