"""Questions to an owner about files that are part of the prompt and were changed while a program ran (`WorkspaceFiles`).

The question is an approval without a task: its arguments are the name of the file and the text that would count. So it is shown and
answered as all others are. It is asked once for each text. A new text of the same file takes the place of the question before, so that
a program that changes a file again and again makes one question wait and not a hundred.
"""

from __future__ import annotations

from typing import Final

import trio

from actors import ActorError, Inbox, Ref
from pegasus.identity import WorkspaceFiles
from pegasus.observe import get_logger
from pegasus.policy import PROMPT_FILE, Approval, ApprovalError, ApprovalMessage, ApprovalRequest, Role, SeekApproval
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
        try:
            for name, text in files.doubted.items():
                request = ApprovalRequest(
                    f"workspace/{name}", PROMPT_FILE, {"path": name, "content": text}, _WHY, Role.OWNER, None, ""
                )
                approval = await approvals.ask(SeekApproval, request)
                if not approval.is_open:  # it was answered before a crash, or once for ever
                    await accept_text(files, approval)
        except (ApprovalError, StorageError, ActorError) as error:
            _log.warning("an owner could not be asked about a file of the workspace yet", error=str(error))
            await trio.sleep(RETRY)
        else:
            await files.wait_for_doubt()


async def accept_text(files: WorkspaceFiles, approval: Approval) -> None:
    """Bring the text of an approval into force if an owner has said yes."""
    name, text = approval.request.arguments.get("path"), approval.request.arguments.get("content")
    if not approval.is_allowed or not isinstance(name, str) or not isinstance(text, str):
        return
    if await files.accept(name, text):
        _log.info("an owner has accepted the text of a file", file=name)
    else:
        _log.info("a file says something else than the text that an owner has accepted", file=name)
