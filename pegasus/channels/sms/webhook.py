"""Requests of Twilio: the check that they come from there, and the message in their form.

**Signatures** (https://www.twilio.com/docs/usage/security#validating-requests). Twilio signs the address that it requests, followed by
each form parameter with its value, sorted by name, with HMAC-SHA1 and the auth token. The address may be signed with or without its
port, so both forms are tried, as in Twilio's own clients.

Behind a proxy the address that arrives is not the one that Twilio has requested. So where `http.public_url` is set, the path and
query are taken from the request and the rest from there.

**Messages** (https://www.twilio.com/docs/messaging/guides/webhook-request). A message is the same however often it comes: it has the
same MessageSid.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

import attrs

from pegasus.channels.series import FILE, SPLIT, SeriesPart, join_texts, note_left_out
from pegasus.channels.series import MOST_FILES as MOST_IN_SERIES
from pegasus.channels.sms.pieces import LONGEST, MOST_FILES
from pegasus.formatting import truncate
from pegasus.messages import RELAYED, ChannelInfo, InboundMessage, Json, Media

TYPE: Final = "sms"
"""The channel type."""
MOST_FIELDS: Final = 500
"""Parameters of a form. Twilio sends far fewer; without a bound a form could cost much time to parse."""
LONGEST_ID: Final = 100
"""Characters of a MessageSid or a number. Both become keys on disk."""
QUIET: Final = 3.0
"""Seconds for which the rest of a message is waited for: a phone sends a long text, and several pictures, as several messages."""
LEAST_SPLIT: Final = 1_500
"""Characters of a text that may have been split: Twilio hands over 1,600 at most, and a phone may look for a blank before that."""
FULL: Final = (70, 134, 153, 160, 306, 459, 1_530)
"""Further lengths at which phones and networks split a text: whole messages of SMS, of each alphabet, and the parts of long ones."""
HANDLED_BY_TWILIO: Final = ("STOP", "START", "HELP")
"""Values of OptOutType: Twilio has answered the person itself, and after STOP lets nothing through to them."""

Form = Sequence[tuple[str, str]]
"""Parameters of a form, in the order in which they came; a name may come twice."""


def sign_request(auth_token: str, url: str, form: Form) -> str:
    """Return the signature that Twilio gives a request: `sign_request(token, "https://…/twilio", [("From", "+15550100")])`."""
    signed = url + "".join(name + value for name, value in sorted(set(form)))
    digest = hmac.digest(auth_token.encode(), signed.encode("utf-8", "surrogatepass"), "sha1")
    return base64.b64encode(digest).decode()


def is_signed_by_twilio(auth_token: str, url: str, form: Form, signature: str) -> bool:
    """Return whether Twilio has signed this request. An empty token or signature is never right."""
    if not auth_token or not signature:
        return False
    given = signature.encode("utf-8", "surrogateescape")
    return any(
        hmac.compare_digest(sign_request(auth_token, address, form).encode(), given) for address in _addresses(url)
    )


def signed_address(public_url: str, requested: str, path: str) -> str:
    """Return the address that Twilio has requested. requested: as it arrived here. path: of the request, without its query.

    >>> signed_address("https://agent.example.com/", "http://127.0.0.1:7718/channels/sms/twilio?a=1", "/channels/sms/twilio")
    'https://agent.example.com/channels/sms/twilio?a=1'
    """
    if not public_url:
        return requested
    _, mark, query = requested.partition("?")
    return public_url.rstrip("/") + path + mark + query


def _addresses(url: str) -> Iterator[str]:
    """Yield the address as it is, without its port, and with the usual port.

    Twilio's servers and proxies differ in whether they name a usual port, so each form may be the one that was
    signed.
    """
    yield url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return
    if port is not None:
        yield _with_place(parts, parts.netloc.rpartition(":")[0])
    elif parts.scheme in ("http", "https"):
        yield _with_place(parts, f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}")


def _with_place(parts: SplitResult, place: str) -> str:
    return parts._replace(netloc=place).geturl()


# ------------------------------------------------------------------ messages


@attrs.frozen
class RemoteFile:
    """A file of a message, to be fetched: `RemoteFile("https://api.twilio.com/…/Media/ME1", "image/jpeg")`."""

    url: str
    """Its address at Twilio, which needs the account's credentials. It was signed with the form, but is checked
    again before they are sent there."""
    mime: str
    """Its MIME type, as Twilio names it."""

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
    """Its text; "" for an MMS that only has files."""
    files: tuple[RemoteFile, ...] = ()
    """Its files, none of them fetched yet."""
    to: str = ""
    """The number that it was sent to, "" where Twilio does not say."""

    def to_message(self, media: tuple[Media, ...] = (), notes: tuple[str, ...] = ()) -> InboundMessage:
        """Return the message for the agent. notes: lines about files that could not be fetched."""
        text = "\n".join(part for part in (self.text, *notes) if part)
        metadata: dict[str, Json] = {RELAYED: True} if notes else {}  # notes name files as others have called them
        return InboundMessage(text, ChannelInfo(TYPE, self.sender, self.sender), self.id, metadata, media)


class NoSms(Exception):
    """A form is no message of a person. str() says why.

    Example: `raise NoSms("found no From of 1 to 100 characters")`. The request is answered with 400, and
    nothing of it is kept.
    """


def parse_form(body: bytes) -> Form:
    """Return the parameters of a form, empty ones included. Raises NoSms for what is no form."""
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError as error:  # not UTF-8, or too many fields
        raise NoSms(f"no form: {error}") from None


def read_sms(form: Form) -> Sms | None:
    """Return the message of a form; None for what needs no answer of ours: states of messages, and STOP. Raises NoSms."""
    fields = dict(form)
    # An answer of ours to STOP would be refused, and would reach somebody who has asked for silence.
    if fields.get("OptOutType", "").upper() in HANDLED_BY_TWILIO:
        return None
    if "Body" not in fields and ("MessageStatus" in fields or "SmsStatus" in fields) and not fields.get("NumMedia"):
        return None
    id, sender = fields.get("MessageSid") or fields.get("SmsSid") or "", fields.get("From", "")
    if not 0 < len(id) <= LONGEST_ID:
        raise NoSms("found no MessageSid of 1 to 100 characters")
    if not 0 < len(sender) <= LONGEST_ID:
        raise NoSms("found no From of 1 to 100 characters")
    return Sms(id, sender, fields.get("Body", ""), tuple(_files(fields)), fields.get("To", "")[:LONGEST_ID])


def _files(fields: Mapping[str, str]) -> list[RemoteFile]:
    count = fields.get("NumMedia", "0")
    wanted = min(int(count), MOST_FILES) if count.isascii() and count.isdecimal() and len(count) < 5 else 0
    return [
        RemoteFile(fields[f"MediaUrl{number}"], fields.get(f"MediaContentType{number}", "application/octet-stream"))
        for number in range(wanted)
        if f"MediaUrl{number}" in fields
    ]


def part_of(sms: Sms) -> SeriesPart:
    """Return what decides whether a message is a part of a series."""
    is_command = sms.text.startswith("/")
    reason = FILE if sms.files else SPLIT if len(sms.text) >= LEAST_SPLIT or len(sms.text) in FULL else ""
    return SeriesPart(
        sms.id,
        sms.sender,
        sms.to,
        None,
        reason,
        has_text=bool(sms.text),
        is_plain=bool(sms.text) and not is_command and not reason,
        may_begin=not is_command,
    )


def join_parts(parts: Sequence[Sms]) -> Sms:
    """Return the parts of a series as one message, which has the id of the first."""
    text = join_texts((part.text for part in parts), lambda text: len(text) in (*FULL, LONGEST))
    files = [file for part in parts for file in part.files]
    if len(files) > MOST_IN_SERIES:
        text = note_left_out(text, len(files) - MOST_IN_SERIES)
    return attrs.evolve(parts[0], text=text, files=tuple(files[:MOST_IN_SERIES]))
