"""Pictures for a model: the formats and sizes that providers accept, their tokens, and models that cannot see.

Only the first bytes of a picture are read; no image library is needed. The limits are those that every provider keeps to:
Anthropic takes 5 MB in base64 and 8000 x 8000 pixels (2000 x 2000 beyond 20 pictures), 32 MB a request
(https://platform.claude.com/docs/en/build-with-claude/vision); OpenAI and Gemini allow more. A picture that a provider would reject
must never be sent: it would stay in the conversation, and every later call would be rejected too.

    picture_problem("image/png", data)  # None, or "it is larger than 5 MB"
    image_tokens(Image("image/png", data))  # 1,600 for a large photograph

`RefusedPictures` handles the other direction: models that turn out not to accept pictures at all, or not these ones.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from binascii import Error as BadBase64
from typing import Final
from weakref import WeakSet

from pegasus.models.base import Image, ModelRequest, Turn, UserTurn
from pegasus.models.refusals import provider_message

MOST_BASE64: Final = 5 * 1024 * 1024
"""Characters of base64 of one picture: the limit of Anthropic, the lowest of all providers."""
MOST_PIXELS: Final = 8000
"""Width and height of one picture."""
MOST_PICTURES: Final = 20
"""Pictures of one request."""

# Anthropic's rule: width times height by 750, and larger pictures are scaled down to about 1600 tokens. It is used for
# all providers: an estimate is enough for compaction and budgets. The usual number is for pictures whose size is not found.
_PIXELS_PER_TOKEN, _MOST_TOKENS, _USUAL_TOKENS = 750, 1600, 1200
_HEAD: Final = 256 * 1024
"""Characters of base64 in which the size is looked for. A JPEG may have it later, behind its metadata."""

# WebP files begin with RIFF, a length, and then WEBP, which `picture_type` checks.
_MAGIC: Final = (
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF87a"),
    ("image/gif", b"GIF89a"),
    ("image/webp", b"RIFF"),
)
EXTENSIONS: Final = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
"""By MIME type that models accept, the extension of its files."""


def picture_type(head: bytes) -> str | None:
    """Return the mime type by the first bytes of a file; None if it is not a type that models accept.

    A file's name and the type that a channel claims are not trusted: a provider rejects a PNG that is sent as a JPEG.
    """
    mime = next((mime for mime, magic in _MAGIC if head.startswith(magic)), None)
    return None if mime == "image/webp" and head[8:12] != b"WEBP" else mime


def size_of(head: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels from the beginning of a file; None if it does not contain them."""
    try:
        match picture_type(head):
            case "image/png" if head[12:16] == b"IHDR":
                width, height = struct.unpack(">II", head[16:24])
            case "image/gif":
                width, height = struct.unpack("<HH", head[6:10])
            case "image/webp":
                return _webp(head)
            case "image/jpeg":
                return _jpeg(head)
            case _:
                return None
    except (struct.error, IndexError):  # the file is too short
        return None
    return width, height


def _webp(head: bytes) -> tuple[int, int] | None:
    """Return the size in one of the three kinds of WebP: extended, lossless, lossy."""
    form = head[12:16]
    if form == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if form == b"VP8L" and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + ((bits >> 14) & 0x3FFF)
    if form == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Walk from segment to segment to the one that begins a frame, which has the size.

    A JPEG begins with segments of metadata of any length, often with a thumbnail in them. Returns None if the frame is not within the
    given bytes.
    """
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF or marker == 0x01 or 0xD0 <= marker <= 0xD8:  # padding, or without a length
            at += 1 if marker == 0xFF else 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + int(struct.unpack(">H", head[at + 2 : at + 4])[0])
    return None


def picture_problem(mime: str, data: str) -> str | None:
    """Return why no model would accept this picture, in words for a person; None if it is acceptable. data: base64.

    Only the beginning of the data is decoded. A large JPEG whose size is not found there is accepted: its metadata may be long.
    """
    if mime not in EXTENSIONS:
        return f"{mime or 'this type'} is not a picture that models read"
    if len(data) > MOST_BASE64:
        return "it is larger than 5 MB"
    try:
        head = b64decode(data[:_HEAD], validate=True)
    except (BadBase64, ValueError):
        return "it is damaged"
    if picture_type(head) != mime:
        found = picture_type(head)
        return f"it says {mime}, but is {found or 'no such picture'}"
    size = size_of(head)
    if size is None and (len(data) <= _HEAD or mime != "image/jpeg"):
        return "it is damaged"
    if size is not None and (max(size) > MOST_PIXELS or min(size) < 1):
        return f"it is {size[0]} x {size[1]} pixels, and models take up to {MOST_PIXELS} x {MOST_PIXELS}"
    return None


def image_tokens(image: Image) -> int:
    """Return the approximate tokens of a picture: one for 750 pixels (Anthropic's rule), at most 1,600, as larger ones are scaled."""
    try:
        size = size_of(b64decode(image.data[:_HEAD]))
    except (BadBase64, ValueError):
        size = None
    if size is None:
        return _USUAL_TOKENS
    return min(max(size[0] * size[1] // _PIXELS_PER_TOKEN, 1), _MOST_TOKENS)


# ------------------------------------------------------------------ models that refuse pictures

_ABOUT_PICTURES: Final = r"(?i)image|vision|multi-?modal|mmproj"
_ABOUT_ALL_PICTURES: Final = (
    r"(?i)(?:not|n't|only)(?: yet)? (?:be )?support|no endpoints found|unknown variant|not a multi-?modal|mmproj"
    r"|does not have vision|text[- ]only|content must be a string|expected (?:a )?(?:string|text)"
)
"""Refusals of every picture, by a model that cannot see: OpenAI, Ollama, llama.cpp, vLLM, DeepSeek, OpenRouter. Other refusals are
about the pictures of this request only."""
_STATUSES: Final = frozenset({400, 404, 415, 422, 500, 501})
"""Statuses with which servers refuse pictures. Local servers answer with 500, OpenRouter with 404."""


class RefusedPictures:
    """Pictures that one model has refused. A turn with such pictures is sent with a line of text for each of them.

    Which models can see is not looked up anywhere: the first refusal says it. What was learned holds until the restart.
    """

    def __init__(self) -> None:
        self._all = False
        """True if the model cannot see at all."""
        self._turns: WeakSet[Turn] = WeakSet()
        """Turns whose pictures were refused."""

    def hides(self, turn: Turn) -> bool:
        """Return True if the pictures of this turn must not be sent."""
        return isinstance(turn, UserTurn) and bool(turn.images) and (self._all or turn in self._turns)

    def learn(self, status: int, body: object, request: ModelRequest) -> bool:
        """Return True if this refusal is about pictures, so that the same request without them may succeed."""
        shown = [turn for turn in request.turns if isinstance(turn, UserTurn) and turn.images and not self.hides(turn)]
        message = provider_message(body)[:4000]
        if not shown or status not in _STATUSES or not re.search(_ABOUT_PICTURES, message):
            return False
        self._turns.update(shown)
        self._all = bool(re.search(_ABOUT_ALL_PICTURES, message))
        return True


def describe_pictures(images: tuple[Image, ...]) -> str:
    """Return a line of text in place of each picture."""
    return "\n".join(
        f"(A picture is here that you cannot see: {image.name or 'unnamed'}, {image.mime})" for image in images
    )
