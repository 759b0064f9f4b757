"""Files that go out by SMS: reached by links below `http.public_url`.

A link is `<public_url>/channels/sms/media/<key>/<name>`. The key names a file of data/media, where every file of a reply is kept, and
has an HMAC with the auth token: nobody can guess it, and no other file can be reached. The same file has the same link after a
restart. Nothing is kept for links alone: when the file is removed, its link ends. Whoever has the link can open the file, as with any
link in an SMS.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import quote, unquote

import attrs

from actors import Ref
from pegasus.file_types import detect_type
from pegasus.messages import StoredFile
from pegasus.storage import MEDIA_FOLDER, JournalMessage, ReadFile

LINK_PATH: Final = "/channels/sms/media/"
PICTURES: Final = frozenset({"image/jpeg", "image/png", "image/gif"})
"""Types that every phone with MMS can show."""
MOST_PICTURE_BYTES: Final = 5_000_000
"""Bytes of all pictures of one MMS (https://www.twilio.com/docs/messaging/guides/accepted-mime-types)."""
SHOWN_TYPES: Final = PICTURES | {"image/webp", "audio/mpeg", "audio/ogg", "video/mp4", "application/pdf", "text/plain"}
"""Types that are served as they are. A browser could run a script in others, so those are served as bytes to be saved."""
_KEY: Final = re.compile(r"([\w-]{43})([\w-]{22})\.([a-z0-9]{1,8})", re.ASCII)
_STORED: Final = re.compile(rf"{MEDIA_FOLDER}/([0-9a-f]{{64}})\.([a-z0-9]{{1,8}})")
_LONGEST_NAME: Final = 80


@attrs.frozen(eq=False, repr=False)
class FileLink:
    """A file of a reply with the address at which it can be fetched."""

    file: StoredFile
    """The file, as the journal keeps it."""
    url: str
    """The address; "" if the outside cannot reach this machine."""

    @property
    def is_picture(self) -> bool:
        """Return whether it can be part of an MMS."""
        return bool(self.url) and self.file.mime in PICTURES

    @property
    def line(self) -> str:
        """The line of the SMS that names it."""
        name = _clean_name(self.file.name)
        return f"{name}: {self.url}" if self.url else f"[file: {name}]"


def link_file(file: StoredFile, public_url: str, auth_token: str) -> FileLink:
    """Return a file of a reply with its link; without a link where there is no public_url."""
    # Only files of data/media are linked: their names are hashes of their content.
    stored = _STORED.fullmatch(file.file)
    if not public_url or stored is None:
        return FileLink(file, "")
    digest, extension, name = bytes.fromhex(stored[1]), stored[2], _clean_name(file.name)
    key = f"{_text(digest)}{_text(_tag(auth_token, digest, extension, name))}.{extension}"
    return FileLink(file, f"{public_url.rstrip('/')}{LINK_PATH}{key}/{quote(name, safe='')}")


def _clean_name(name: str) -> str:
    """Return a name that is safe in a line of text and in a path."""
    plain = re.sub(r"[^\w.() -]", "_", name.replace("\\", "/").rpartition("/")[2]).strip(" .")
    return plain[-_LONGEST_NAME:] or "file"


async def find_file(path: str, auth_token: str, journal: Ref[JournalMessage]) -> tuple[str, str, bytes] | None:
    """Return name, MIME type and content of the file that the path of a link names, None if there is none.

    Raises StorageError, ActorError.
    """
    key, _, name = path.removeprefix(LINK_PATH).partition("/")
    found, name = _KEY.fullmatch(key), unquote(name)
    if found is None:
        return None
    digest, extension = urlsafe_b64decode(f"{found[1]}="), found[3]
    # The name is part of the proof, so nobody can have a file of ours shown under a name of theirs.
    if not hmac.compare_digest(found[2], _text(_tag(auth_token, digest, extension, name))):
        return None
    content = await journal.ask(ReadFile, f"{MEDIA_FOLDER}/{digest.hex()}.{extension}")
    return (name, detect_type(content, name), content) if content else None


def _tag(auth_token: str, digest: bytes, extension: str, name: str) -> bytes:
    """Return what proves that a link is ours: 128 bits, of the content and the name that people see."""
    return hmac.digest(auth_token.encode(), b"sms file\0" + digest + f"{extension}\0{name}".encode(), "sha256")[:16]


def _text(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")
