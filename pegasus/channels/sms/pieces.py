"""Messages of a reply: plain text in pieces, in the alphabet of SMS where that is possible, with a line for each file.

**The alphabet** of SMS is GSM-7 (3GPP TS 23.038). A text with only these characters takes 160 of them in one part, or 153 in each of
several. A single other character, such as a curly quote, makes the phone network send the whole text as UCS-2: 70 characters in one
part, 67 in each of several. Each part is paid for. So punctuation that only looks nicer is replaced by its plain form if that keeps a
text in the alphabet.
"""

from __future__ import annotations

from typing import Final

import attrs

from pegasus.channels.sms.file_links import MOST_PICTURE_BYTES, FileLink, link_file
from pegasus.markdown import split_markdown, to_plain_text, utf16_length
from pegasus.messages import OutboundMessage

LONGEST: Final = 1600
"""Characters of a message (https://www.twilio.com/docs/api/errors/21617)."""
MOST_FILES: Final = 10
"""Files that an MMS may have (https://www.twilio.com/docs/messaging/api/message-resource)."""
GSM_7: Final = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
    "\f^{}\\[~]|€"  # these take the room of two
)
"""Characters of the alphabet. The last line has those of its extension table."""
PLAIN_FORMS: Final = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u202f\t", " "),
        **dict.fromkeys("•·▪◦‣", "-"),
        "…": "...",
        "→": "->",
        "×": "x",
        "\u200b": "",
        "\u00ad": "",
        "\ufeff": "",
    }
)
"""Plain form of punctuation that is not in the alphabet; "" for characters that cannot be seen."""


@attrs.frozen(eq=False, repr=False)
class SmsPiece:
    """Text and files of one call."""

    text: str
    """Plain text of at most LONGEST characters, the lines of the files included."""
    files: tuple[FileLink, ...] = ()
    """Files whose links are in the text."""

    @property
    def pictures(self) -> list[str]:
        """Links of the pictures that go with it, as many as an MMS may have."""
        pictures, size = [], 0
        for link in self.files:
            if link.is_picture and size + link.file.size <= MOST_PICTURE_BYTES:
                pictures.append(link.url)
                size += link.file.size
        return pictures


def sms_pieces(reply: OutboundMessage, public_url: str, auth_token: str) -> list[SmsPiece]:
    """Return the messages of a reply: its text in pieces, then a line for each file.

    A piece is as long as what is sent for it: plain text in UTF-16 code units, which may be longer or shorter than its Markdown.
    Lines of files fill the last message up to LONGEST, and then begin another one.
    """
    rendered: dict[str, str] = {}

    def measure(piece: str) -> int:
        """Return the length of the SMS that a Markdown text becomes, as Twilio counts it."""
        rendered[piece] = _render_sms(piece)
        return utf16_length(rendered[piece])

    texts = [rendered.get(piece) or _render_sms(piece) for piece in split_markdown(reply.text, LONGEST, measure)]
    links = [link_file(file, public_url, auth_token) for file in reply.files]
    pieces = [SmsPiece(text) for text in texts if text]
    for link in links:
        last = pieces[-1] if pieces else SmsPiece("")
        text = f"{last.text}\n{link.line}" if last.text else link.line
        if pieces and len(last.files) < MOST_FILES and utf16_length(text) <= LONGEST:
            pieces[-1] = SmsPiece(text, (*last.files, link))
        else:
            pieces.append(SmsPiece(link.line, (link,)))
    return pieces


def _render_sms(markdown: str) -> str:
    return to_cheaper_text(to_plain_text(markdown))


# ------------------------------------------------------------------ the alphabet


def is_gsm(text: str) -> bool:
    """Return whether the text has only characters of GSM-7."""
    return GSM_7.issuperset(text)


def to_cheaper_text(text: str) -> str:
    r"""Return the text with plain punctuation if that brings it into GSM-7, otherwise the text itself.

    >>> to_cheaper_text("It’s “done” – see below…")
    'It\'s "done" - see below...'
    >>> to_cheaper_text("“готово”")
    '“готово”'
    """
    if is_gsm(text):
        return text
    plain = text.translate(PLAIN_FORMS)
    return plain if is_gsm(plain) else text
