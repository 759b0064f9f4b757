"""Files that go out by SMS: kept on disk, and reached by links below `http.public_url`.

A link is `<public_url>/channels/sms/media/<secret>/<name>`. The secret is an HMAC of the content with the auth token: nobody can guess
it, and the same file has the same link after a restart. Whoever has the link can open the file, as with any link in an SMS.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from typing import Final
from urllib.parse import quote

import attrs

from actors import Ref
from pegasus.messages import Media
from pegasus.storage import JournalMessage, ReadFile, ReplaceFile
from pegasus.wire import decode_object, encode_line

LINK_PATH: Final = "/channels/sms/media/"
PICTURES: Final = frozenset({"image/jpeg", "image/png", "image/gif"})
"""Types that every phone with MMS can show."""
MOST_PICTURE_BYTES: Final = 5_000_000
"""Bytes of all pictures of one MMS (https://www.twilio.com/docs/messaging/guides/accepted-mime-types)."""
SHOWN_TYPES: Final = PICTURES | {"image/webp", "audio/mpeg", "audio/ogg", "video/mp4", "application/pdf", "text/plain"}
"""Types that are served as they are. A browser could run a script in others, so those are served as bytes to be saved."""
_SECRET: Final = re.compile(r"[0-9a-f]{40}")
_LONGEST_NAME: Final = 80


@attrs.frozen(eq=False, repr=False)
class FileLink:
    """A file of a reply with the address at which it can be fetched."""

    media: Media
    content: bytes
    secret: str
    url: str
    """The address; "" if the outside cannot reach this machine."""

    @property
    def is_picture(self) -> bool:
        """Return whether it can be part of an MMS."""
        return bool(self.url) and self.media.mime in PICTURES

    @property
    def line(self) -> str:
        """The line of the SMS that names it."""
        name = clean_name(self.media.name)
        return f"{name}: {self.url}" if self.url else f"[file: {name}]"


def link_file(media: Media, public_url: str, auth_token: str) -> FileLink:
    """Return a file of a reply with its link; without a link where there is no public_url, or where it cannot be read."""
    try:
        content = base64.b64decode(media.data, validate=True)
    except (binascii.Error, ValueError):
        return FileLink(media, b"", "", "")
    secret = hmac.digest(auth_token.encode(), b"sms file\0" + content, "sha256").hex()[:40]
    place = f"{public_url.rstrip('/')}{LINK_PATH}{secret}/{quote(clean_name(media.name), safe='')}"
    return FileLink(media, content, secret, place if public_url else "")


def clean_name(name: str) -> str:
    """Return a name that is safe in a line of text and in a path."""
    plain = re.sub(r"[^\w.() -]", "_", name.replace("\\", "/").rpartition("/")[2]).strip(" .")
    return plain[-_LONGEST_NAME:] or "file"


async def keep_file(link: FileLink, journal: Ref[JournalMessage]) -> None:
    """Write a file, so that its link works from now on. Raises StorageError, ActorError."""
    head = encode_line({"name": clean_name(link.media.name), "mime": link.media.mime})
    await journal.ask(ReplaceFile, _path(link.secret), head + link.content)


async def find_file(path: str, journal: Ref[JournalMessage]) -> tuple[str, str, bytes] | None:
    """Return name, MIME type and content of the file that the path of a link names, None if there is none.

    Raises StorageError, ActorError.
    """
    secret = path.removeprefix(LINK_PATH).partition("/")[0]
    if not _SECRET.fullmatch(secret):
        return None
    head, _, content = (await journal.ask(ReadFile, _path(secret))).partition(b"\n")
    if not head:
        return None
    facts = decode_object(head)
    return str(facts.get("name")), str(facts.get("mime")), content


def _path(secret: str) -> str:
    return f"channels/sms-files/{secret}"
