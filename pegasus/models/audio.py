"""Speech: writing down what was said, and saying what was written, over endpoints in OpenAI's format.

    POST <base_url>/audio/transcriptions    multipart: file, model, response_format=json    → {"text", "usage"?}
    POST <base_url>/audio/speech            {"model", "input", "voice", "response_format"}  → the audio file

A client of `/v1/audio` gets what the service answers, in the format that it asks for (`transcribe_as`, `stream_speech`).

They are counted with the roles "transcribe" and "speech". Services that bill by the second do not tell tokens; then the words are
counted, as an estimate. What a service answers comes from outside: a text is nothing but a text.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import attrs

from pegasus.file_types import extension_of
from pegasus.messages import Json
from pegasus.models.base import Label, ModelError, Usage
from pegasus.models.endpoint_model import EndpointModel
from pegasus.models.formats import encode_json, usage_of
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
    """A model that hears or speaks."""

    async def transcribe(self, audio: bytes, mime: str, label: Label) -> str:
        """Return the words of a recording. Raises ModelError. Cancelled: the connection is closed, and nothing is counted."""
        answer = await self.transcribe_as([("response_format", "json")], audio, mime, label)
        return str(self._facts(answer)["text"])

    async def transcribe_as(self, fields: Sequence[tuple[str, str]], audio: bytes, mime: str, label: Label) -> bytes:
        """Return the answer to a recording as the service has it. Raises ModelError. Cancelled: as `transcribe`.

        fields: of the form, beside model and file. With a `response_format` that is JSON, the answer is a JSON object.
        """
        # Refused here, since an upload that the service refuses takes time and costs the same traffic.
        if len(audio) > MOST_AUDIO:
            raise ModelError(f"{self.name}: found {len(audio):,} bytes, allowed: {MOST_AUDIO:,}", kind="request")
        # Services count seconds or tokens of their own; for a budget the size of the file is near enough.
        await self._admit(label, len(audio) // _BYTES_PER_TOKEN)
        # Random, so that no recording and no field can hold it.
        boundary = f"pegasus-{secrets.token_hex(16)}"
        body = _multipart(boundary, [("model", self.model_id), *fields], audio, f"audio.{extension_of(mime)}", mime)
        headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
        answer = await self._call("/audio/transcriptions", body, headers, MOST_SAID)
        said, usage = answer.decode("utf-8", "replace"), Usage()
        if dict(fields).get("response_format", "json").endswith("json"):
            facts = self._facts(answer)
            said, usage = str(facts["text"]), usage_of(facts.get("usage"), "input_tokens", "output_tokens")
        # A service that counts seconds tells no tokens.
        self._count(label, usage if usage.prompt_tokens else None, round(text_tokens(said)))
        return answer

    def _facts(self, answer: bytes) -> dict[str, Json]:
        """Return the JSON object of a transcription, which has a text. Raises ModelError."""
        try:
            facts = decode_object(answer.decode("utf-8", "replace"))
        except (ValueError, WireError):
            text = f"{self.name}: its server answered with something else than a transcription"
            raise ModelError(text, kind="server") from None
        if not isinstance(facts.get("text"), str):
            raise ModelError(f"{self.name}: its server answered without a text", kind="server")
        return facts

    async def speak(self, text: str, label: Label, *, voice: str) -> bytes:
        """Return a text as speech: an audio file in Ogg Opus. Raises ModelError. Cancelled: as `transcribe`."""
        audio = bytearray()

        async def take(piece: bytes) -> None:
            audio.extend(piece)

        await self.stream_speech({"input": text, "voice": voice, "response_format": "opus"}, label, take)
        return bytes(audio)

    async def stream_speech(
        self, fields: Mapping[str, Json], label: Label, take: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Call `take` with each piece of a text as speech. Raises ModelError. Cancelled: as `transcribe`.

        fields: of the request, beside the model; `input` is the text.
        """
        text = str(fields["input"])
        if len(text) > LONGEST_SPEECH:
            raise ModelError(
                f"found {len(text):,} characters, allowed: {LONGEST_SPEECH:,}; make several files", kind="request"
            )
        tokens = round(text_tokens(text))
        await self._admit(label, tokens)
        size = await self._stream("/audio/speech", encode_json({"model": self.model_id, **fields}), take, MOST_AUDIO)
        if not size:
            raise ModelError(f"{self.name}: its server answered with an empty file", kind="server")
        self._count(label, None, tokens)


def _multipart(boundary: str, fields: Sequence[tuple[str, str]], content: bytes, name: str, mime: str) -> bytes:
    """Return a form with a file. Names are ours, so none of them has a character that must be escaped; values need no escape."""
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n' for field, value in fields
    )
    head += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: {mime}\r\n\r\n'
    return head.encode("utf-8", "replace") + content + f"\r\n--{boundary}--\r\n".encode()
