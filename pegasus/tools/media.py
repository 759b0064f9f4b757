"""The tools save_attachment and speak: media become files of the workspace.

**save_attachment.** What is attached to a message is kept below data/media, in the agent's home, which is closed to tools and
hidden from commands. So a spreadsheet or an archive, which no model reads by itself, has to be copied before a task can work with
it.

The name of a kept file is the SHA-256 of its content, and whoever knows it may have the file: it stands in the conversation that the
file was sent to, and nobody guesses it. There is no listing. The content must have that hash, so neither a link in the place of the
file nor a damaged one is copied.

A file has at most `media.max_bytes`, since more is never kept. A copy that fails or is stopped leaves nothing.

**speak.** A recording of a text is made by the model that `models.speech` names. It is a file of the workspace, as if a task had
made it, so that it is sent like any other file. It is Opus in Ogg, which Telegram shows as a voice message. Its name is made of its
content, so the same words said twice are two files only if they sound different. The tool exists only where the setting names a
model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.messages import Json
from pegasus.models import Label, ModelError, ToolSpec
from pegasus.outside import Untrusted
from pegasus.storage import JournalMessage, StorageError, is_kept_name, read_kept
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.places import own_place

if TYPE_CHECKING:
    from pegasus.models import AudioModel

# ------------------------------------------------------------------ attachments

_SHORT: Final = 12
"""Characters of the hash in the name of a copy for which the model names only a folder."""
_SAVE_ATTACHMENT: Final = ToolSpec(
    "save_attachment",
    "Copy a file that was attached to a message, named media/<sha256>.<ext>, into the workspace. Then other tools and "
    "commands can open it.",
    parameters(
        {
            "file": {"type": "string", "description": "media/<sha256>.<ext>, exactly as named"},
            "path": {"type": "string", "description": "New file, or folder ending in /"},
        },
        "file",
        "path",
    ),
)


def save_attachment_tool(journal: Ref[JournalMessage]) -> Tool:
    """Return the tool `save_attachment(file, path)`. journal: keeps what is attached.

    Example: `ToolExecutor([*standard_tools(…), save_attachment_tool(journal)])`.
    """
    from pegasus.tools.files import IncomingFile, save_incoming

    async def save(arguments: Any, context: ToolContext) -> Json:
        """Copy the file. Cancelled, or failed: nothing of the copy is left."""
        name, path = arguments["file"], arguments["path"]
        if not is_kept_name(name):
            raise ToolError(
                f"found {name!r:.120}, allowed: media/<sha256>.<ext>, exactly as the message that it was attached to names it"
            )
        # The policy asks about calls that change something outside of the workspace; this one cannot.
        context = attrs.evolve(context, allowed_paths=(context.workspace,))
        digest, _, extension = name.rpartition("/")[2].partition(".")
        name_in_folder = f"{digest[:_SHORT]}.{extension}"
        # A path that is refused costs no reading.
        await trio.to_thread.run_sync(IncomingFile, context, path, name_in_folder)
        content = await _read_attachment(journal, name)
        saved = await trio.to_thread.run_sync(save_incoming, context, path, name_in_folder, content)
        return {"path": saved, "size": len(content)}

    return Tool(_SAVE_ATTACHMENT, save, "file", Effect.ONCE, reach=Reach.WORKSPACE, source=Untrusted.FILE)


async def _read_attachment(journal: Ref[JournalMessage], name: str) -> bytes:
    """Return the content of a kept file. Raises ToolError."""
    try:
        content = await read_kept(journal, name)
    except (StorageError, ActorError) as error:
        raise ToolError(f"{name} cannot be read now: {error}") from error
    if content is None:
        raise ToolError(
            f"{name} is not kept, or not any more: attached files are removed after media.keep_days. Compare the name; "
            "if it is right, ask for the file to be sent again"
        )
    return content


# ------------------------------------------------------------------ speech

SPEAK: Final = "speak"
"""Name of the tool."""
_FOLDER: Final = "speech/"
"""Folder of the workspace for recordings."""
_TIMEOUT: Final = 180.0
"""Seconds that the model may take."""


def speak_tool(speaker: Callable[[], AudioModel | None], voice: str, folder: ToolContext) -> Tool:
    """Return the tool.

    speaker: returns the model that speaks, if there is one now. voice: the usual one. folder: the context whose workspace
    the recordings are saved in.

    Example: `speak_tool(lambda: models.audio("speech"), "alloy", base_context(workspace, (), 0))`.
    """
    from pegasus.models import LONGEST_SPEECH
    from pegasus.tools.files import save_incoming

    async def speak(arguments: Any, context: ToolContext) -> Json:
        """Have the text spoken and save the recording. The model is looked up at each call, since settings change."""
        model = speaker()
        if model is None:
            raise ToolError("found no models.speech in the settings, so there is no voice; set it, or write instead")
        text = arguments["text"].strip()
        if not text:
            raise ToolError("text is empty")
        label = Label("speech", context.origin, task_id=context.task_id, guest=context.principal.guest)
        try:
            audio = await model.speak(text, label, voice=arguments.get("voice") or voice)
        except ModelError as error:
            raise ToolError(f"nothing was spoken: {error}") from error
        place = own_place(
            attrs.evolve(folder, allowed_paths=(folder.workspace,), key=context.key, principal=context.principal)
        )
        # The name is made of the content, so the same recording is kept once, and replaces itself.
        name = f"{hashlib.sha256(audio).hexdigest()[:16]}.ogg"
        save = partial(save_incoming, place, _FOLDER + name, name, audio, replace=True)
        path = await trio.to_thread.run_sync(save)
        return {"path": path, "bytes": len(audio), "type": "audio/ogg", "note": "send it, or nobody hears it"}

    spec = ToolSpec(
        SPEAK,
        "Make a recording of a text, read aloud. The result names a file of the workspace; send it like any other file.",
        parameters(
            {
                "text": {"type": "string", "description": f"What to say, up to {LONGEST_SPEECH:,} characters"},
                "voice": {"type": "string", "description": "Another voice than the usual one, as the service names it"},
            },
            "text",
        ),
    )
    return Tool(spec, speak, "media", Effect.ONCE, reach=Reach.WORKSPACE, timeout=_TIMEOUT)
