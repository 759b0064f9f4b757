"""`POST /v1/audio/transcriptions` and `/v1/audio/speech`, passed on to the models that `models.transcribe` and `models.speech` name.

A client may name any model; the one of the settings answers, in the format that the client asks for, as far as that model has it. Its
refusals are given back with their words. Calls are counted within the budgets.

A recording is what its content says it is, whatever its name and its type are: the service is told the same. Speech is sent on as it
comes, with the type of its format, so that no service decides how a browser reads it. Where it breaks off, the connection ends, by
which clients see that it is incomplete.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import trio
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pegasus.access import MESSAGE
from pegasus.file_types import detect_type
from pegasus.messages import Json
from pegasus.models import MOST_AUDIO, AudioModel, Label, ModelError
from pegasus.web.bodies import SpeechBody, TranscriptionBody
from pegasus.web.config import WebServices
from pegasus.web.operations import Operation
from pegasus.web.requests import ApiRequest
from pegasus.web.routes.client_turns import label_of, model_failure
from pegasus.web.visitors import ApiError

SPEECH_TYPES: Final[Mapping[str, str]] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
"""Formats of speech, with the types of their files."""
TEXT_TYPES: Final[Mapping[str, str]] = {
    "json": "application/json",
    "verbose_json": "application/json",
    "diarized_json": "application/json",
    "text": "text/plain",
    "srt": "text/plain",
    "vtt": "text/vtt",
}
"""Formats of a transcription, with their types."""
FORM_FIELDS: Final = (
    "response_format",
    "language",
    "prompt",
    "temperature",
    "timestamp_granularities[]",
    "include[]",
    "chunking_strategy",
)
"""Fields of a transcription that are passed on."""
SPEECH_FIELDS: Final = ("input", "voice", "response_format", "speed", "instructions")
"""Fields of speech that are passed on."""
MOST_FIELDS: Final = 32
"""Fields of a form."""
_PIECE: Final = 16 << 10
"""Bytes of a form that are read at a time; others are served in between."""


class _FormParser(MultiPartParser):
    """Starlette's reader of forms, without files of its own: the body is in memory as a whole."""

    spool_max_size = 1 << 40


async def read_form(content_type: str, body: bytes) -> tuple[bytes, str, list[tuple[str, str]]]:
    """Return the content of the file of a form, its name, and the other fields. Raises ApiError."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), _PIECE):
            await trio.lowlevel.checkpoint()
            yield body[start : start + _PIECE]

    if content_type.partition(";")[0].strip().lower() != "multipart/form-data":
        raise ApiError(400, "bad_request", "content-type: allowed: multipart/form-data, with the recording as `file`")
    headers = Headers({"content-type": content_type})
    try:
        form = await _FormParser(headers, pieces(), max_files=1, max_fields=MOST_FIELDS).parse()
    except (MultiPartException, ValueError) as error:  # ValueError: of a charset that decodes nothing but its own
        raise ApiError(400, "bad_request", f"found a form that is not well-formed ({error})") from None
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise ApiError(400, "bad_request", "file: missing; allowed: a recording, with a name")
    fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    try:
        return file.file.read(), file.filename or "", fields
    finally:
        file.file.close()


def kind_of_recording(content: bytes, name: str) -> str:
    """Return the MIME type of a recording by its content. Raises ApiError for what is none."""
    kind = detect_type(content, name)
    # The sound of a film is a recording, too: phones and browsers put it into the same containers.
    if not kind.startswith(("audio/", "video/")):
        found = f"a file of the type {kind}" if content else "an empty file"
        raise ApiError(
            400, "bad_request", f"file: found {found}; allowed: a recording (Ogg, MP3, WAV, FLAC, MP4, WebM …)"
        )
    return kind


class AudioRoutes:
    """Handlers of speech."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def transcribe(self, request: ApiRequest) -> Response:
        """Return the words of a recording. Raises ApiError, 501 if no model hears here."""
        model = self._model("transcribe", "hears")
        content, name, fields = await read_form(request.http.headers.get("content-type", ""), await request.body())
        given = dict(fields)
        form = given.get("response_format") or "json"
        if form not in TEXT_TYPES:
            raise ApiError(400, "bad_request", f"response_format: allowed: {', '.join(TEXT_TYPES)}")
        if given.get("stream", "false").lower() not in ("false", "0"):
            raise ApiError(400, "bad_request", "stream: a transcription is answered as a whole; leave it out")
        if len(content) > MOST_AUDIO:
            raise ApiError(413, "too_large", f"file: found {len(content):,} bytes, allowed: {MOST_AUDIO:,}")
        kind = kind_of_recording(content, name)
        passed = [(name, value) for name, value in fields if name in FORM_FIELDS and name != "response_format"]
        label = label_of(request, "transcribe")
        try:
            answer = await model.transcribe_as([("response_format", form), *passed], content, kind, label)
        except ModelError as error:
            raise model_failure(error) from None
        return Response(answer, headers={"cache-control": "no-store"}, media_type=TEXT_TYPES[form])

    async def speak(self, request: ApiRequest) -> Response:
        """Return a text as speech, as it comes. Raises ApiError, 501 if no model speaks here."""
        model = self._model("speech", "speaks")
        fields = await request.json()
        if not fields["input"]:
            raise ApiError(400, "bad_request", "input: allowed: a text that is not empty")
        if not fields["voice"]:
            raise ApiError(400, "bad_request", "voice: allowed: the name of a voice of the model")
        form = str(fields.get("response_format") or "mp3")
        passed = {name: fields[name] for name in SPEECH_FIELDS if fields.get(name) is not None}
        return SpeechResponse(
            model, {**passed, "response_format": form}, label_of(request, "speech"), SPEECH_TYPES[form]
        )

    def _model(self, role: str, does: str) -> AudioModel:
        model = self._services.audio(role)
        if model is None:
            message = f"no model {does} here; models.{role} of the settings names one"
            raise ApiError(501, "not_implemented", message)
        return model


class SpeechResponse(Response):
    """An audio file, sent on while it is made."""

    def __init__(self, model: AudioModel, fields: Mapping[str, Json], label: Label, media_type: str) -> None:
        super().__init__(headers={"cache-control": "no-store"}, media_type=media_type)
        self.raw_headers = [field for field in self.raw_headers if field[0] != b"content-length"]
        self._model = model
        self._fields = fields
        self._label = label

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file. Raises ApiError, before the first byte or in the middle. Cancelled: the call of the model ends."""
        is_begun = False

        async def take(piece: bytes) -> None:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        try:
            await self._model.stream_speech(self._fields, self._label, take)
        except ModelError as error:
            raise model_failure(error) from None
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def audio_operations(services: WebServices) -> Sequence[Operation]:
    """Return the operations of this file."""
    routes = AudioRoutes(services)
    return (
        Operation(
            "POST",
            "/v1/audio/transcriptions",
            routes.transcribe,
            "The words of a recording",
            MESSAGE,
            body=TranscriptionBody,
            body_media="multipart/form-data",
        ),
        Operation("POST", "/v1/audio/speech", routes.speak, "A text as speech", MESSAGE, body=SpeechBody),
    )
