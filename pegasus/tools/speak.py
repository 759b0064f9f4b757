"""The tool `speak`: a recording of a text, made by the model that `models.speech` names.

The recording is a file of the workspace, as if a task had made it, so that it is sent like any other file. It is Opus in Ogg, which
Telegram shows as a voice message. Its name is made of its content, so the same words said twice are two files only if they sound
different. The tool exists only where the setting names a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from pegasus.messages import Json
from pegasus.models import LONGEST_SPEECH, AudioModel, Label, ModelError, ToolSpec
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.files import IncomingFile

SPEAK: Final = "speak"
"""Name of the tool."""
_FOLDER: Final = "speech/"
_TIMEOUT: Final = 180.0
_SPEC: Final = ToolSpec(
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


def speak_tool(speaker: Callable[[], AudioModel | None], voice: str, folder: ToolContext) -> Tool:
    """Return the tool.

    speaker: returns the model that speaks, if there is one now. voice: the usual one. folder: the context whose workspace
    the recordings are saved in.

    Example: `speak_tool(lambda: models.audio("speech"), "alloy", base_context(workspace, (), 0))`.
    """

    async def speak(arguments: Any, context: ToolContext) -> Json:
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
        place = attrs.evolve(folder, allowed_paths=(folder.workspace,), key=context.key)
        path = await trio.to_thread.run_sync(_save, place, audio)
        return {"path": path, "bytes": len(audio), "type": "audio/ogg", "note": "send it, or nobody hears it"}

    return Tool(_SPEC, speak, "media", Effect.ONCE, reach=Reach.WORKSPACE, timeout=_TIMEOUT)


def _save(context: ToolContext, audio: bytes) -> str:
    """Write a recording and return its path. Blocks."""
    name = f"{hashlib.sha256(audio).hexdigest()[:16]}.ogg"
    with IncomingFile(context, _FOLDER + name, name, replace=True) as file:
        file.write(audio)
        return file.finish()
