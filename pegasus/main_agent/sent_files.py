"""Files that replies send: checked as those of file tools are, and kept before the reply is posted.

A model names a path. What is sent is the content at that moment: it is kept below data/media by its SHA-256 before the thought is
written, and the reply in the outbox names that copy. So a file that is changed or deleted later changes nothing, and a crash loses
nothing.

May the work read this file? The policy is asked as for `read_file`, so a rule about it holds here too; and work for a guest may send
from the workspace only, whatever the owner's tasks may read. Whether the file may leave is decided before (`reply_decisions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.access import Principal
from pegasus.conversation import sanitize_name
from pegasus.file_types import detect_type, extension_of
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import until_written
from pegasus.messages import Json, Metadata, StoredFile
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.storage import Item, JournalMessage, Post, keep_file
from pegasus.tools import Effect, Reach, Tool, ToolContext, ToolError, own_place, parameters, read_content

MOST_FILES: Final = 10
"""Files of one reply."""
LONGEST_NAME: Final = 120
"""Characters of a file's name as people see it."""

_READ_SPEC: Final = ToolSpec("read_file", "", parameters({"path": {"type": "string"}}, "path"))
"""Specification in place of that of `read_file`: under this name the rules of the owner decide about reading."""


async def keep_files(
    services: AgentServices,
    journal: Ref[JournalMessage],
    paths: Sequence[str],
    item: Item,
    principal: Principal,
    reply: Post,
    outside: tuple[Untrusted, ...],
    before: Sequence[StoredFile] = (),
) -> tuple[StoredFile, ...]:
    """Return the files of a reply, which are on disk by then. Raises ToolError with the reason why they are not sent.

    services: give the folders and bounds of files (`files`), and the executor that asks the policy. journal: keeps the files, below
    data/media. paths: as the model gave them. item: the message that is worked on. principal: person that it is worked on for.
    outside: labels of what the work has read. before: files that the same reply sends already; the bounds are those of all
    together.

    While the disk refuses to write, waits. Cancelled: some may be on disk, and nobody names them.
    """
    access = services.files.now
    if access is None:
        raise ToolError("files cannot be sent here")
    if (count := len(before) + len(paths)) > MOST_FILES:
        raise ToolError(f"found {count} files, allowed: {MOST_FILES} in one reply; pack them or send several replies")
    context = attrs.evolve(
        access.context, key=reply.key, principal=principal, origin=item.message.channel, outside=outside
    )
    if not principal.is_owner:
        # The owner may have opened other folders to tasks; work for a guest sends nothing from there.
        context = own_place(attrs.evolve(context, allowed_paths=(context.workspace,)))
    files: list[StoredFile] = []
    room = max(0, access.max_bytes - sum(file.size for file in before))
    for path in paths:
        content = await _read(services, path, room, context)
        room -= len(content)
        files.append(await _keep(journal, path, content))
    return tuple(files)


async def _read(services: AgentServices, path: str, room: int, context: ToolContext) -> bytes:
    """Return the content of a file. room: bytes that it may have. Raises ToolError if it cannot be sent."""
    contents: list[bytes] = []

    async def read(arguments: Metadata, context: ToolContext) -> Json:
        """Read the file in a thread, and hand it over past the result, since results are text. Raises ToolError."""
        contents.append(await trio.to_thread.run_sync(read_content, context, path, room, abandon_on_cancel=True))
        return None

    # Run like a tool of the model: with the checks of the policy, the deadline, and errors in words.
    tool = Tool(_READ_SPEC, read, "file", Effect.PURE, reach=Reach.INSIDE)
    outcome = await services.toolset.now.executor.run(tool, {"path": path}, context)
    if outcome.failed:
        raise ToolError(outcome.why)
    return contents[0]


async def _keep(journal: Ref[JournalMessage], path: str, content: bytes) -> StoredFile:
    """Keep a file; return its name, type, place and size. The type is told by the content, not by the name.

    While the disk refuses to write, waits.
    """
    name = sanitize_name(path.replace("\\", "/").rstrip("/").rpartition("/")[2])[-LONGEST_NAME:] or "file"
    mime = detect_type(content, name)
    file = await until_written(partial(keep_file, journal, content, extension_of(mime)), "media")
    return StoredFile(name, mime, file, len(content))
