"""Files that the tool `send_file` has gathered for the answer that is being worked on.

In direct speech the answer is the model's text, and a text has no place for files. So `send_file` keeps a file and notes it, and the
files go out behind the text at the end of the turn. A turn that ends without a text sends them alone; a /stop drops them.

The queue is the session. The result of each call names its file in its metadata ("gathered"), and the entry that ends the turn names
all that it sends ("sends"): the answer itself, or a note where there is none. What is gathered and not yet sent is thus known
after a crash, and what an entry sends is posted again from that entry alone; the outbox recognises it. Each session has a
queue of its own, and in a session that serves several chats each file belongs to the chat that it was gathered in.

    {"gathered": {"name": "chart.png", "mime": "image/png", "file": "media/9f…e1.png", "size": 52113, "to": "web:c1"}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pegasus.conversation import Entry
from pegasus.messages import Address, Json, Metadata, StoredFile
from pegasus.models import ToolSpec
from pegasus.storage import Item
from pegasus.tools import prepare_arguments
from pegasus.wire import WireError, from_wire, to_wire

SEND_FILE: Final = ToolSpec(
    "send_file",
    "Send a file along with your answer: it goes out behind your text when you have written it.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Path of a file in the workspace, such as one that a task has made",
            }
        },
        "required": ["path"],
    },
)
"""The tool as the model is shown it. Only in direct speech, since `reply` takes files itself."""
SENT: Final = "files_sent"
"""`metadata.type` of the note about files that went out without a text, and part of the key of their post. Stored."""

_GATHERED: Final = "gathered"
"""Key in the metadata of a result: the file that the call has gathered."""
_SENDS: Final = "sends"
"""Key in the metadata of an entry: the files that go out with it."""


class MediaQueue:
    """Files that wait for the end of the turn, oldest first. It is made from the entries of a session, in their order.

    Example:
        queue = MediaQueue()
        queue.follow(Entry(now, "tool", result, call_id="c1", metadata=gathered(file, address)))
        queue.waiting(address)  # (file,)
    """

    def __init__(self) -> None:
        self._files: dict[str, list[StoredFile]] = {}
        """By conversation."""

    def __len__(self) -> int:
        return sum(map(len, self._files.values()))

    def follow(self, entry: Entry) -> None:
        """Take note of an entry: a file was gathered, files were sent, or the turn was stopped. Never fails."""
        metadata = entry.metadata
        if entry.role == "tool" and (fact := metadata.get(_GATHERED)) is not None:
            file, to = _read_file(fact), fact.get("to") if isinstance(fact, Mapping) else None
            if file is not None and isinstance(to, str):
                files = self._files.setdefault(to, [])
                # A file that is gathered twice goes out once, in its last place.
                files[:] = [*(other for other in files if other != file), file]
        elif _SENDS in metadata or metadata.get("type") == "stopped":
            self._files.clear()

    def waiting(self, address: Address) -> tuple[StoredFile, ...]:
        """Return the files that wait in a conversation."""
        return tuple(self._files.get(str(address), ())) if self._files else ()


def send_file_path(arguments: Metadata) -> tuple[str, str | None]:
    """Return the path in the arguments of a call, and what is wrong with them, in words for the model; None if nothing is."""
    prepared, problem = prepare_arguments(SEND_FILE.parameters, arguments)
    path = str(prepared.get("path") or "").strip()
    return path, problem or (None if path else "path is empty")


def gathered(file: StoredFile, item: Item) -> dict[str, Json]:
    """Return the metadata for the result of a call that has gathered a file. item: the message that is worked on."""
    return {_GATHERED: {**_fields(file), "to": str(item.message.channel.address)}}


def sent(files: Sequence[StoredFile]) -> dict[str, Json]:
    """Return the metadata for an entry that sends these files; {} for none."""
    return {_SENDS: [_fields(file) for file in files]} if files else {}


def files_sent_by(entry: Entry) -> tuple[StoredFile, ...]:
    """Return the files that go out with an entry. One whose description cannot be read is left out."""
    facts = entry.metadata.get(_SENDS)
    files = [_read_file(fact) for fact in facts] if isinstance(facts, list) else []
    return tuple(file for file in files if file is not None)


def _fields(file: StoredFile) -> dict[str, Json]:
    """Return a file as it stands in metadata."""
    return dict(to_wire(file))


def _read_file(fact: Json) -> StoredFile | None:
    """Return the file that metadata describes, None if they describe none: an edited session must not fail."""
    if not isinstance(fact, dict):
        return None
    try:
        return from_wire({key: value for key, value in fact.items() if key != "to"}, StoredFile)
    except WireError:
        return None
