"""From the form of Twilio's webhook to a message for the agent (https://www.twilio.com/docs/messaging/guides/webhook-request)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

import attrs

from pegasus.channels.sms.signature import Form
from pegasus.formatting import truncate
from pegasus.messages import ChannelInfo, InboundMessage, Json, Media

TYPE: Final = "sms"
MOST_FIELDS: Final = 500
MOST_FILES: Final = 10
"""Files of one message (https://www.twilio.com/docs/messaging/api/message-resource)."""
LONGEST_ID: Final = 100
HANDLED_BY_TWILIO: Final = ("STOP", "START", "HELP")
"""Values of OptOutType: Twilio has answered the person itself, and after STOP lets nothing through to them."""


@attrs.frozen
class RemoteFile:
    """A file of a message, to be fetched: `RemoteFile("https://api.twilio.com/…/Media/ME1", "image/jpeg")`."""

    url: str
    mime: str

    @property
    def name(self) -> str:
        """A name for people: the last part of the address, with an ending by its type."""
        stem = self.url.partition("?")[0].rstrip("/").rpartition("/")[2] or "file"
        kind = self.mime.partition(";")[0].strip().rpartition("/")[2]
        return truncate(f"{stem}.{kind}" if kind.isalnum() else stem, LONGEST_ID)


@attrs.frozen
class Sms:
    """A message as Twilio hands it over."""

    id: str
    """Its MessageSid. The same one is the same message, however often it comes."""
    sender: str
    """The number of who wrote it, as "+15550101"."""
    text: str
    files: tuple[RemoteFile, ...] = ()

    def to_message(self, media: tuple[Media, ...] = (), notes: tuple[str, ...] = ()) -> InboundMessage:
        """Return the message for the agent. notes: lines about files that could not be fetched."""
        text = "\n".join(part for part in (self.text, *notes) if part)
        return InboundMessage(text, ChannelInfo(TYPE, self.sender, self.sender), self.id, media=media)

    def to_json(self) -> Json:
        """Return a JSON value that `sms_of_json` reads."""
        files: list[Json] = [{"url": file.url, "mime": file.mime} for file in self.files]
        return {"id": self.id, "sender": self.sender, "text": self.text, "files": files}


class NoSms(Exception):
    """A form is no message of a person. str() says why."""


def parse_form(body: bytes) -> Form:
    """Return the parameters of a form, empty ones included. Raises NoSms for what is no form."""
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError as error:  # not UTF-8, or too many fields
        raise NoSms(f"no form: {error}") from None


def read_sms(form: Form) -> Sms | None:
    """Return the message of a form; None for what needs no answer of ours: states of messages, and STOP. Raises NoSms."""
    fields = dict(form)
    if fields.get("OptOutType", "").upper() in HANDLED_BY_TWILIO:
        return None
    if "Body" not in fields and ("MessageStatus" in fields or "SmsStatus" in fields) and not fields.get("NumMedia"):
        return None
    id, sender = fields.get("MessageSid") or fields.get("SmsSid") or "", fields.get("From", "")
    if not 0 < len(id) <= LONGEST_ID:
        raise NoSms("found no MessageSid of 1 to 100 characters")
    if not 0 < len(sender) <= LONGEST_ID:
        raise NoSms("found no From of 1 to 100 characters")
    return Sms(id, sender, fields.get("Body", ""), tuple(_files(fields)))


def _files(fields: Mapping[str, str]) -> list[RemoteFile]:
    count = fields.get("NumMedia", "0")
    wanted = min(int(count), MOST_FILES) if count.isascii() and count.isdecimal() and len(count) < 5 else 0
    return [
        RemoteFile(fields[f"MediaUrl{number}"], fields.get(f"MediaContentType{number}", "application/octet-stream"))
        for number in range(wanted)
        if f"MediaUrl{number}" in fields
    ]


def sms_of_json(value: Json) -> Sms | None:
    """Return the message that `Sms.to_json` has written, None for anything else."""
    match value:
        case {"id": str(id), "sender": str(sender), "text": str(text), "files": list(files)}:
            known = [file for file in files if isinstance(file, dict)]
            return Sms(
                id, sender, text, tuple(RemoteFile(str(file.get("url")), str(file.get("mime"))) for file in known)
            )
    return None
