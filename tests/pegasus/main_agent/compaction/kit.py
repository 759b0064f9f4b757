"""Sessions in short: what people and agent say, as entries."""

import json
from itertools import count

from pegasus.conversation.entry import Entry, repair_log
from pegasus.models.base import ToolCall
from pegasus.testing.scripted import say

NOW = 1_772_029_800_000  # 2026-02-25 14:30:00 UTC
MINUTE = 60_000
GOOD = "\n".join(
    (
        "## Now",
        "Anna wants the report.",
        "## People",
        "cli:main, slack:#dev",
        "## Decisions and facts",
        "none",
        "## Open",
        "none",
    )
)


class Talk:
    """Builds a session; a minute passes between two entries."""

    def __init__(self, start=NOW):
        self.entries = []
        self._now = start
        self._items = count(1)
        self._calls = count(1)

    def add(self, role, content="", **more):
        self._now += MINUTE
        entry = Entry(self._now, role, content, **more)
        self.entries.append(entry)
        return entry

    def heard(self, text, kind="cli", channel_id="main", **metadata):
        n = next(self._items)
        return self.add("user", f"[channel: {kind} | id: {channel_id}]\n{text}", item=n, metadata=metadata)

    def called(self, name, result, text="", failed=False, **arguments):
        call_id = f"c{next(self._calls)}"
        self.add("assistant", text, calls=(ToolCall(call_id, name, arguments),))
        content = result if isinstance(result, str) else json.dumps(result)
        return self.add("tool", content, call_id=call_id, failed=failed)

    def said(self, text, kind="cli", channel_id="main", failed=False):
        call_id = f"c{next(self._calls)}"
        where = {"channelType": kind, "channelId": channel_id}
        self.add("assistant", calls=(ToolCall(call_id, "reply", {"text": text, **where}),))
        content = "Error: nothing was said" if failed else json.dumps({"queued": True, **where, "seq": 1})
        return self.add("tool", content, call_id=call_id, failed=failed)

    def gave(self, task, description="look it up"):
        return self.called(
            "spawn_subagent",
            {"taskId": task, "status": "spawned", "type": "general", "description": description},
            description=description,
            input=description,
        )

    def notice(self, task, text="", word="completed", kind="cli", channel_id="main"):
        n = next(self._items)
        content = f"[channel: {kind} | id: {channel_id}]\n[Task {task} {word}]\n{text}"
        return self.add("user", content, item=n, metadata={"type": "task_notify", "taskId": task})

    def undelivered(self, began, kind="cli", channel_id="main"):
        n = next(self._items)
        content = f"[channel: {kind} | id: {channel_id}]\n[Reply 1 could not be delivered]\nIt began: {began}"
        return self.add("user", content, item=n, metadata={"type": "reply_undelivered", "seq": 1})

    @property
    def last_item(self):
        return max(entry.item for entry in self.entries if entry.item is not None)


def long_talk(messages=40, size=400, kind="cli", channel_id="main"):
    """Each message is answered; texts are told apart by their numbers."""
    talk = Talk()
    for n in range(messages):
        talk.heard(f"message {n} " + "x" * size, kind, channel_id)
        talk.said(f"answer {n} " + "y" * size, kind, channel_id)
    return talk


def is_well_formed(entries):
    return not repair_log(entries, lambda _: None, 0).notes


def good(places=("main", "#dev")):
    return say(GOOD + "\n" + " ".join(places))
