"""`TokenReach`: what a token reaches over MCP, by its scopes and the conversation that it is bound to.

A token that belongs to one conversation, or to a bridge, reaches the tasks of its own conversations and nothing else, whatever scopes
it has. Any other token sees all tasks and the owner's memory with the scope "read", and changes tasks with "control", as over HTTP.
Without these it still sees, answers and cancels the tasks that were asked for in its own conversations: a message there could do the
same.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from pegasus.access import MESSAGE, READ, TokenGrant
from pegasus.messages import Json


@attrs.frozen(eq=False, repr=False)
class TokenReach:
    """Reach of a token."""

    grant: TokenGrant

    @property
    def talks(self) -> bool:
        """True if it may send messages."""
        return self.grant.allows(MESSAGE)

    @property
    def sees_everything(self) -> bool:
        """True if it may see all tasks, and the owner's memory."""
        return self.grant.allows(READ) and not self.grant.is_bound

    @property
    def changes_tasks(self) -> bool:
        """True if there are tasks that it may change."""
        return self.talks or self.grant.sees_all_conversations

    def sees(self, task: Mapping[str, Json]) -> bool:
        """Return whether it may see this task, which is in the form of `task_json`."""
        return self.sees_everything or (self.grant.gets_replies and self._is_own(task))

    def changes(self, task: Mapping[str, Json]) -> bool:
        """Return whether it may answer or cancel this task."""
        return self.grant.sees_all_conversations or (self.talks and self._is_own(task))

    def _is_own(self, task: Mapping[str, Json]) -> bool:
        metadata = task.get("metadata")
        channel = metadata.get("channel") if isinstance(metadata, Mapping) else None
        if not isinstance(channel, Mapping):
            return False
        type, id = channel.get("type"), channel.get("channelId")
        if not isinstance(type, str) or not isinstance(id, str):
            return False
        return self.has_conversation(type, id)

    def has_conversation(self, type: str, id: str) -> bool:
        """Return whether a conversation is one of its own."""
        return not self.grant.refusal(type, None if self.grant.token.bridge else id)
