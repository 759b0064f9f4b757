"""The audio endpoints of the test provider: transcription and speech, as OpenAI's service has them.

Requests are checked as strictly as by the service: the fields that must be there, the form with its file, the formats and the length.

    def answer(call: AudioCall) -> ProviderAnswer:
        return heard("Buy milk") if call.file is not None else spoken(b"OggS…")

    async with open_provider() as server:
        server.audio = answer

These endpoints differ from all others of the provider: a transcription is a form with a file, and speech comes back as
bytes. So they have a reader of their own, and a function of their own on the server (`ProviderServer.audio`) beside the
script for text. Both return a `ProviderAnswer`, so the faults are the same: `refuse`, `reset`, a page in place of an answer.

The form is read by hand, strictly: a client whose boundary or line breaks are wrong must fail here and not at the service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import attrs

from pegasus.messages import Json
from pegasus.testing.provider.answers import ProviderAnswer, refuse
from pegasus.testing.provider.requests import Invalid, require

TRANSCRIPTIONS: Final = "/v1/audio/transcriptions"
SPEECH: Final = "/v1/audio/speech"
_RECORDINGS: Final = ("flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "oga", "ogg", "wav", "webm", "weba", "amr")
"""Endings of files that are taken; the real service knows the format by them."""
_FORMATS: Final = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_NAME: Final = re.compile(r'form-data; name="([^"]+)"(?:; filename="([^"]+)")?')


@attrs.frozen
class AudioCall:
    """A valid request of one of the two endpoints.

    Example::

        [call] = server.audio_calls
        call.path, call.fields["model"]  # ("/v1/audio/speech", "tts-1")
    """

    path: str
    """TRANSCRIPTIONS or SPEECH."""
    fields: Mapping[str, Json]
    """Fields of the JSON or of the form, without the file."""
    file: bytes | None = attrs.field(default=None, repr=False)
    """The recording to write down; None of a request for speech."""
    mime: str = ""
    """Type that the form gives it."""


def heard(text: str, usage: Mapping[str, Json] | None = None) -> ProviderAnswer:
    """Return the answer to a transcription.

    usage: as the service counts it, in tokens or seconds of sound; None where an older model counts nothing.
    """
    body: dict[str, Json] = {"text": text} | ({"usage": dict(usage)} if usage else {})
    return ProviderAnswer(body=json.dumps(body).encode(), content_type="application/json")


def spoken(audio: bytes, mime: str = "audio/ogg") -> ProviderAnswer:
    """Return the answer to a request for speech.

    The answer is the sound itself, not JSON; a client knows its type by the header.
    """
    return ProviderAnswer(body=audio, content_type=mime)


def read_audio(path: str, headers: Mapping[str, str], body: bytes, api_key: str = "") -> AudioCall | ProviderAnswer:
    """Return a request, or the refusal of an invalid one. api_key: the only one that is accepted; "" = any.

    The key is checked first, as by the service: a wrong one says nothing about the rest.
    """
    key = headers.get("authorization", "").removeprefix("Bearer ")
    if not key or (api_key and key != api_key):
        return refuse(401, "invalid api key")
    try:
        return parse_audio(path, headers, body)
    except (Invalid, ValueError) as error:
        return refuse(400, str(error))


def parse_audio(path: str, headers: Mapping[str, str], body: bytes) -> AudioCall:
    """Return a request of one of the two endpoints. headers: names in lower case. Raises Invalid.

    Fields that the service does not know are not refused here.
    """
    kind = headers.get("content-type", "")
    if path == TRANSCRIPTIONS:
        return _parse_form(kind, body)
    require(kind.partition(";")[0] == "application/json", "content-type: application/json is required")
    fields = json.loads(body)
    require(isinstance(fields, dict), "the body must be an object")
    for name in ("model", "input", "voice"):
        require(isinstance(fields.get(name), str) and fields[name] != "", f"{name}: a text is required")
    require(len(fields["input"]) <= 4096, "input: string too long, at most 4096 characters")
    require(fields.get("response_format", "mp3") in _FORMATS, "response_format: not supported")
    return AudioCall(path, fields)


def _parse_form(kind: str, body: bytes) -> AudioCall:
    """Return the request in a form. Raises Invalid for a form that is not well-formed, or has no recording."""
    head, _, boundary = kind.partition("boundary=")
    require(head.startswith("multipart/form-data") and boundary != "", "content-type: multipart/form-data is required")
    # The first part is empty, and the last one is the closing mark: without both the body was cut.
    parts = body.split(b"--" + boundary.strip('"').encode())
    require(len(parts) > 2 and parts[0] == b"" and parts[-1].strip() == b"--", "the form is not well-formed")
    fields: dict[str, Json] = {}
    file: bytes | None = None
    mime = ""
    for part in parts[1:-1]:
        raw, mark, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        described = dict(line.split(": ", 1) for line in raw.decode().lower().split("\r\n"))
        found = _NAME.search(described.get("content-disposition", ""))
        if not mark or found is None or not content.endswith(b"\r\n"):
            raise Invalid("a part of the form is not well-formed")
        if found[2] is None:
            fields[found[1]] = content.removesuffix(b"\r\n").decode()
            continue
        require(found[1] == "file", "file: the recording is required under this name")
        # The service goes by the ending of the name and not by the type, so a client must name the file well.
        require(found[2].rpartition(".")[2] in _RECORDINGS, f"file: the format of {found[2]} is not supported")
        file, mime = content.removesuffix(b"\r\n"), described.get("content-type", "")
    require(file is not None, "file: required")
    require(isinstance(fields.get("model"), str), "model: required")
    return AudioCall(TRANSCRIPTIONS, fields, file, mime)
