"""Words of owners: the messages of a turn whose values count for the calls that come of it (`pegasus.policy.owner_values`).

They are those that an owner has typed and that the turn works on, each by itself. A report of a task, a job and everything else that
the program has put into the queue is nobody's message, and neither is a text that was forwarded or that a program has sent.

What a message names is to be done once. So the right to act by its values is given to one task: the first that is begun or told
something because of it. After that neither the agent itself nor another task acts by them; they may still read by them. Which task
that was stands in the session, so a restart decides alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from pegasus.access import Principal
from pegasus.conversation import Entry
from pegasus.main_agent.delegation import RESUME, SPAWN, SPAWN_ALIAS
from pegasus.main_agent.session import TASK_RESULT, USE_SKILL, Session
from pegasus.main_agent.turns import AgentTurn
from pegasus.messages import RELAYED, InboundMessage
from pegasus.outside import OUTSIDE
from pegasus.policy import OwnerMessage, ToolKind
from pegasus.storage import Item
from pegasus.tools import Tool

_HANDING_OVER: Final = (SPAWN, SPAWN_ALIAS, RESUME)
"""Tools that give work to a task."""
_ACTS: Final = (ToolKind.ACT, ToolKind.DESTRUCTIVE)


def typed_message(message: InboundMessage, sender: Principal) -> OwnerMessage | None:
    """Return a message as its values count, None if they do not. sender: person that it is worked on for."""
    is_typed = not message.is_internal and message.metadata.get(RELAYED) is not True and OUTSIDE not in message.metadata
    if not is_typed or not sender.is_owner:
        return None
    return OwnerMessage(f"{message.channel.address}/{message.id}", message.text)


@attrs.frozen(eq=False, repr=False)
class OwnerWords:
    """Finds the words of owners for the calls of a turn."""

    _session: Session
    """Shows what was done because of each message."""
    _turn: AgentTurn
    """The turn."""
    _find: Callable[[str], Tool | None]
    """Returns the tool of a name."""

    @property
    def entries(self) -> Sequence[Entry]:
        """Entries of the session since the first message of the turn; () where a compaction has taken its beginning."""
        return self._session.of_item(self._turn.items[0].n)

    def of_call(self, tool: str) -> tuple[OwnerMessage, ...]:
        """Return the messages whose values count for a call of this tool, which has no result yet."""
        typed = [(item, typed_message(item.message, self._turn.sender(item))) for item in self._turn.items]
        hands_over = tool in (*_HANDING_OVER, USE_SKILL)
        return tuple(
            attrs.evolve(message, may_act=not self._is_used_up(item, hands_over=hands_over))
            for item, message in typed
            if message is not None and self._session.of_item(item.n)
        )

    def _is_used_up(self, item: Item, *, hands_over: bool) -> bool:
        """Return whether a task has been given this message, or, where one is to be given it now, the agent has acted by it itself."""
        names: dict[str, str] = {}
        for entry in self._session.of_item(item.n):
            names.update((call.id, call.name) for call in entry.calls)
            if entry.role != "tool" or entry.failed:
                continue
            name = names.get(entry.call_id or "", "")
            if name in _HANDING_OVER or (name == USE_SKILL and entry.content.startswith(TASK_RESULT)):
                return True
            tool = self._find(name) if hands_over else None
            if tool is not None and tool.kind in _ACTS:
                return True
        return False
