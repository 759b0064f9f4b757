"""Speech: writing down what was said, and saying what was written, over endpoints in OpenAI's format.

    POST <base_url>/audio/transcriptions    multipart: file, model, response_format=json    → {"text", "usage"?}
    POST <base_url>/audio/speech            {"model", "input", "voice", "response_format"}  → the audio file

They are counted with the roles "transcribe" and "speech". Services that bill by the second do not tell tokens; then the words are
counted, as an estimate. What a service answers comes from outside: a text is nothing but a text.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

import attrs

from pegasus.file_types import extension_of
from pegasus.models.base import Label, ModelError, Usage
from pegasus.models.endpoint_model import EndpointModel
from pegasus.models.formats import encode_json
from pegasus.models.tokens import text_tokens
from pegasus.wire import WireError, decode_object

MOST_AUDIO: Final = 25 << 20
"""Bytes of a recording. OpenAI's own service takes no more."""
MOST_SAID: Final = 1 << 20
"""Bytes of an answer that is a text."""
LONGEST_SPEECH: Final = 4096
"""Characters that are spoken in one call, the bound of OpenAI's service."""
_BYTES_PER_TOKEN: Final = 1_000
"""Of a compressed recording, roughly, for budgets: 10 tokens a second."""


@attrs.frozen(eq=False, repr=False)
class AudioModel(EndpointModel):
    """A model that hears or speaks.

    Example:
        model = AudioModel("openai/whisper-1", "whisper-1", client, usage, timeout=120.0)
        text = await model.transcribe(recording, "audio/ogg", Label("transcribe", channel))
    """

    async def transcribe(self, audio: bytes, mime: str, label: Label) -> str:
        """Return the words of a recording. Raises ModelError. Cancelled: the connection is closed, and nothing is counted."""
        # Refused here, since an upload that the service refuses takes time and costs the same traffic.
        if len(audio) > MOST_AUDIO:
            raise ModelError(f"{self.name}: found {len(audio):,} bytes, allowed: {MOST_AUDIO:,}", kind="request")
        # Services count seconds or tokens of their own; for a budget the size of the file is near enough.
        await self._admit(label, len(audio) // _BYTES_PER_TOKEN)
        # Random, so that no recording can hold it.
        boundary = f"pegasus-{secrets.token_hex(16)}"
        fields = {"model": self.model_id, "response_format": "json"}
        body = _multipart(boundary, fields, audio, f"audio.{extension_of(mime)}", mime)
        headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
        answer = await self._call("/audio/transcriptions", body, headers, MOST_SAID)
        try:
            facts = decode_object(answer.decode("utf-8", "replace"))
        except (ValueError, WireError):
            raise ModelError(
                f"{self.name}: its server answered with something else than a transcription", kind="server"
            ) from None
        text = facts.get("text")
        if not isinstance(text, str):
            raise ModelError(f"{self.name}: its server answered without a text", kind="server")
        self._count(label, _usage_of(facts.get("usage")), round(text_tokens(text)))
        return text

    async def speak(self, text: str, label: Label, *, voice: str) -> bytes:
        """Return a text as speech: an audio file in Ogg Opus. Raises ModelError. Cancelled: as `transcribe`."""
        if len(text) > LONGEST_SPEECH:
            raise ModelError(
                f"found {len(text):,} characters, allowed: {LONGEST_SPEECH:,}; make several files", kind="request"
            )
        tokens = round(text_tokens(text))
        await self._admit(label, tokens)
        fields = {"model": self.model_id, "input": text, "voice": voice, "response_format": "opus"}
        audio = await self._call("/audio/speech", encode_json(fields), {}, MOST_AUDIO)
        if not audio:
            raise ModelError(f"{self.name}: its server answered with an empty file", kind="server")
        self._count(label, None, tokens)
        return audio


def _multipart(boundary: str, fields: Mapping[str, str], content: bytes, name: str, mime: str) -> bytes:
    """Return a form with a file. Names and values are ours, so none of them has a character that must be escaped."""
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields.items()
    )
    head += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: {mime}\r\n\r\n'
    return head.encode() + content + f"\r\n--{boundary}--\r\n".encode()


def _usage_of(facts: object) -> Usage | None:
    """Return the tokens that a service has counted; None if it counts seconds, or nothing."""
    if not isinstance(facts, dict):
        return None
    prompt, completion = facts.get("input_tokens"), facts.get("output_tokens")
    if type(prompt) is int and type(completion) is int and 0 <= prompt < 1 << 40 and 0 <= completion < 1 << 40:
        return Usage(prompt, completion)
    return None
