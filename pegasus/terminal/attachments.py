r"""Files that go with a typed message: `@notes.txt` and `@"my photo.png"` in its text.

A mention stays in the text, so that the model knows which file is meant where; the file itself goes along as an attachment. Texts,
pictures, PDFs, documents and recordings are taken, since the agent can read nothing else. Whatever cannot be sent is said before
anything is sent, and the text stays on the prompt to be corrected.

Not every `@` is a mention. An unquoted word is one if such a file exists, or if it has the form of a path; `@property` in a pasted
program and `@alice` are text. A backslash in front (`\@types/node`) makes text of anything.

Files are read when Enter is pressed, in the screen's thread: they are smaller than a message may be.
"""

from __future__ import annotations

import mimetypes
import os
import re
import shlex
import stat
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from pegasus.conversation import LONGEST_TEXT, LONGEST_TEXTS
from pegasus.file_types import detect_type
from pegasus.media import is_document
from pegasus.messages import Media
from pegasus.models import picture_type
from pegasus.terminal.line_chat import FRAME_OVERHEAD
from pegasus.terminal.tty import neutralise

MOST_FILES: Final = 20
"""Files that a message may mention."""

_MENTION: Final = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"'@][^\s]*)|"([^"\n]+)$)""", re.MULTILINE)
"""Mention of a file: a quoted name, one without blanks, or one whose closing quotation mark is missing."""
_ESCAPED: Final = re.compile(r"(?<!\S)\\@")
"""An @ that is text although it looks like the beginning of a mention."""
_PUNCTUATION: Final = ".,;:!?)]}\"'"
"""Characters behind a name that may belong to the sentence."""
_NO_PATH: Final = re.compile(r"[()\[\]{}<>=,;|$`]")
"""Characters that tell a piece of a program from the name of a file that is missing."""
_EXTENSION: Final = re.compile(r"\.\w{1,5}$")
_DROPPED: Final = frozenset([".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".mp3", ".wav", ".ogg", ".opus", ".m4a"])
"""Ends of the names of files that are attached when their path is pasted."""
_LONGEST_PATH: Final = 4096
"""Characters of a path, at most."""
_LONGEST_NAME: Final = 200
"""Characters of a name that are sent."""


class AttachmentProblem(Exception):
    """A mentioned file cannot be sent; str() says which and why, for a person.

    Raised before anything is sent. The screen shows it above the prompt, where the text stays to be corrected.
    """


def read_attachments(text: str, room: int, folder: Path | None = None) -> tuple[str, tuple[Media, ...]]:
    """Return the text to send and the files that it mentions. Raises AttachmentProblem; then nothing should be sent.

    room: bytes that the attachments may take in the message. folder: what relative paths start from, the current one if None.

    >>> read_attachments("no file here", 1000)
    ('no file here', ())
    """
    # A file that is mentioned twice goes along once.
    files = read_files(dict.fromkeys(_mentioned(text, folder or Path.cwd())), room)
    return _ESCAPED.sub("@", text), files


def read_files(paths: Iterable[Path], room: int, piped: BinaryIO | None = None) -> tuple[Media, ...]:
    """Return the files as attachments. Raises AttachmentProblem; then nothing should be sent.

    room: bytes that they may take in the message. piped: what the name "-" stands for, if it stands for anything.
    """
    found: list[Media] = []
    letters = 0
    for path in paths:
        if len(found) == MOST_FILES:
            raise AttachmentProblem(f"a message takes {MOST_FILES} files at most")
        # Room is what is left behind the text and the files before. The gateway would end the connection for more.
        left = room - FRAME_OVERHEAD - 2 * _LONGEST_NAME
        if piped is not None and path == Path("-"):
            path, data = Path("stdin"), piped.read(max(0, left))
            if len(data) * 4 // 3 > left or not data:
                raise AttachmentProblem(
                    f"stdin has {'more bytes than this message has room for' if data else 'nothing'}"
                )
        else:
            data = _read(path, left)
        media, length = _media_of(path, data)
        letters += length
        if length > LONGEST_TEXT or letters > LONGEST_TEXTS:
            limit = f"{LONGEST_TEXT:,} of one file, {LONGEST_TEXTS:,} of a message"
            raise AttachmentProblem(f"{path.name} has {length:,} characters; the agent reads {limit}")
        room -= len(media.data) + FRAME_OVERHEAD + len(media.name.encode())
        found.append(media)
    return tuple(found)


def mention_dropped(pasted: str) -> str:
    """Return a mention of the picture, PDF or recording whose path was pasted; any other text as it is.

    A file that is dropped on a terminal comes as its path, quoted or with backslashes. The path of a text may be meant as such.
    """
    if not pasted.startswith(("/", "~/", "'", '"')) or len(pasted) > _LONGEST_PATH:
        return pasted
    try:
        words = shlex.split(pasted)
        path = Path(words[0]).expanduser() if len(words) == 1 else None
        if path is None or path.suffix.lower() not in _DROPPED or '"' in str(path):
            return pasted
        if not path.is_absolute() or not path.is_file():
            return pasted
    except (OSError, RuntimeError, ValueError):  # no shell would read it so, or no such user
        return pasted
    return f'@"{path}" '


def describe_attachment(media: Media) -> str:
    """Return the line that shows what goes along: `[attached: notes.txt, 1,204 bytes]`."""
    return f"[attached: {media.name}, {media.size:,} bytes]"


def _mentioned(text: str, folder: Path) -> Iterator[Path]:
    """Yield the files that a text mentions, in order. Raises AttachmentProblem for a missing one."""
    for match in _MENTION.finditer(text):
        if match[4]:
            raise AttachmentProblem(f'the closing " behind {match[4]} is missing')
        quoted = match[1] or match[2]
        word = quoted or match[3]
        # Behind a word may stand the comma of the sentence. The whole word is tried first: a name may end with one.
        names = [word] if quoted else [word, word.rstrip(_PUNCTUATION)]
        path = next(
            (path for name in names if name and (path := _resolve(name, folder)) and os.path.exists(path)), None
        )
        if path is not None:
            yield path
        elif quoted or _is_like_path(names[-1]):
            raise AttachmentProblem(f"there is no file {names[-1]} (a \\ before the @ sends it as text)")


def _resolve(name: str, folder: Path) -> Path | None:
    """Return the path that a name means, None for one that cannot be a path."""
    try:
        return folder / Path(name).expanduser()
    except (RuntimeError, ValueError):  # no such user
        return None


def _is_like_path(word: str) -> bool:
    """Return whether an unquoted word is a path and not a piece of a program or somebody's name."""
    if _NO_PATH.search(word):
        return False
    return "/" in word or word.startswith(("~", ".")) or _EXTENSION.search(word) is not None


def _read(path: Path, room: int) -> bytes:
    """Return the content of a file. Raises AttachmentProblem for one that is too large, unreadable, or no file."""
    try:
        facts = path.stat()
        if stat.S_ISDIR(facts.st_mode):
            raise AttachmentProblem(f"{path.name or path} is a folder")
        if not stat.S_ISREG(facts.st_mode):  # a pipe would be waited for, a device never ends
            raise AttachmentProblem(f"{path.name} is not a file that can be sent")
        if facts.st_size * 4 // 3 > room:
            left = max(0, room) * 3 // 4
            raise AttachmentProblem(f"{path.name} has {facts.st_size:,} bytes; this message has room for {left:,}")
        # One byte more than the size, so that a file that grows meanwhile is noticed.
        with path.open("rb") as file:
            data = file.read(facts.st_size + 1)
    except OSError as error:
        raise AttachmentProblem(f"{path.name} cannot be read: {error.strerror or error}") from None
    if len(data) != facts.st_size:  # also what /proc shows, whose size is unknown
        raise AttachmentProblem(f"{path.name} changes while it is read")
    return data


def _media_type(path: Path, data: bytes) -> str:
    """Return the type of a PDF, a document or a recording, which the agent has read to it; "" for anything else."""
    found = detect_type(data, path.name)
    if is_document(data):
        return found
    # A text may begin with the letters that mark a recording; no recording is without a null byte.
    return found if found == "application/pdf" or (found.startswith("audio/") and b"\0" in data) else ""


def _media_of(path: Path, data: bytes) -> tuple[Media, int]:
    """Return the attachment, and its length in characters if it is a text, else 0. Raises AttachmentProblem."""
    mime = picture_type(data) or _media_type(path, data)
    length = 0
    if not mime:
        try:
            text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise AttachmentProblem(
                f"{path.name} is neither a text, a picture (PNG, JPEG, GIF, WebP), a PDF, a document nor a recording"
            )
        length = len(text)
        # The kind of a text is a hint for the model, guessed from the name; that it is a text is known from its bytes.
        guess = mimetypes.guess_type(path.name)[0] or ""
        mime = guess if guess.startswith("text/") or guess == "application/json" else "text/plain"
    # The name is shown on the terminals of others, and is part of the prompt.
    name = neutralise(os.fspath(path.name)).replace("\n", "_").replace("\t", "_")[:_LONGEST_NAME] or "unnamed"
    return Media(name, mime, b64encode(data).decode("ascii")), length
