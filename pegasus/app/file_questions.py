"""Questions about files of the workspace: a text that may not be the owner's counts when an owner has said yes to it."""

from __future__ import annotations

from typing import Final

import trio

from actors import ActorError, Inbox, Ref
from pegasus.access import (
    PROMPT_FILE,
    Approval,
    ApprovalError,
    ApprovalMessage,
    ApprovalRequest,
    AskedCall,
    Role,
    SeekApproval,
)
from pegasus.identity import WorkspaceFiles
from pegasus.observe import get_logger
from pegasus.storage import StorageError

RETRY: Final = 5.0
"""Seconds until an owner is asked again after that has failed."""
_WHY: Final = (
    "the file was changed while a program ran that can write in the workspace, and its text is part of every prompt"
)
_log = get_logger("approvals")


async def ask_about_files(inbox: Inbox[object], files: WorkspaceFiles, approvals: Ref[ApprovalMessage]) -> None:
    """Ask an owner about each text that is doubted, until cancelled. A question that could not be asked is asked again."""
    inbox.started()
    while True:
        seen = files.doubt.count
        try:
            # The keeper knows an approval by its key and its arguments: after a restart the same text is not asked about twice.
            for name, text in files.doubted.items():
                call = AskedCall(f"workspace/{name}", PROMPT_FILE, {"path": name, "content": text}, _WHY)
                request = ApprovalRequest((call,), Role.OWNER, None, "")
                approval = await approvals.ask(SeekApproval, request)
                if not approval.is_open:  # it was answered before a crash, or once for ever
                    await accept_text(files, approval)
        except (ApprovalError, StorageError, ActorError) as error:
            _log.warning("an owner could not be asked about a file of the workspace yet", error=str(error))
            await trio.sleep(RETRY)
        else:
            await files.doubt.wait(seen)


async def accept_text(files: WorkspaceFiles, approval: Approval) -> None:
    """Bring the text of an approval into force if an owner has said yes.

    The approval names the text, not only the file: a program may have changed the file again since the owner was asked.
    Then nothing counts, and the new text has a question of its own.
    """
    arguments = approval.request.first.arguments
    name, text = arguments.get("path"), arguments.get("content")
    if not approval.is_allowed or not isinstance(name, str) or not isinstance(text, str):
        return
    if await files.accept(name, text):
        _log.info("an owner has accepted the text of a file", file=name)
    else:
        _log.info("a file says something else than the text that an owner has accepted", file=name)
