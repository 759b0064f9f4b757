"""Messages of a chat that the agent has not answered yet: a count for the question that is asked before leaving.

The agent works on the messages of a conversation in their order. So a reply to one of them shows that the earlier ones are done, too:
they were answered together, or in silence. That the last ones ended in silence no reply shows; the chat then asks the agent whether
anything waits.

    unanswered = UnansweredMessages()
    unanswered.add("m-1", "hello")
    unanswered.note_answer("m-1")
"""

from __future__ import annotations

from pegasus.intake import lane_of


class UnansweredMessages:
    """Ids of messages that were handed over and have no answer, in order."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def last(self) -> str | None:
        """Id of the message that was handed over last; None if all have their answers."""
        return next(reversed(self._ids), None)

    def add(self, id: str, text: str) -> None:
        """Add a message. A command that passes the queue is left out: it is answered at once."""
        if lane_of(text) == "main":
            self._ids[id] = None

    def remove(self, id: str) -> None:
        """Remove a message that was not taken."""
        self._ids.pop(id, None)

    def note_answer(self, id: object) -> bool:
        """Remove the message with this id and all before it; return whether it is one of them."""
        if id not in self._ids:
            return False
        for earlier in list(self._ids):
            del self._ids[earlier]
            if earlier == id:
                break
        return True
