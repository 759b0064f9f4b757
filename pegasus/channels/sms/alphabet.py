"""The alphabet of SMS: GSM-7 (3GPP TS 23.038), and texts that fit into it.

A text with only these characters takes 160 of them in one part, or 153 in each of several. A single other character, such as a
curly quote, makes the phone network send the whole text as UCS-2: 70 characters in one part, 67 in each of several. Each part is
paid for. So punctuation that only looks nicer is replaced by its plain form if that keeps a text in the alphabet.
"""

from __future__ import annotations

from typing import Final

from pegasus.channels.splitting import utf16_length

BASIC: Final = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENDED: Final = frozenset("\f^{}\\[~]|€")
"""Characters that take the room of two."""
_ALL: Final = BASIC | EXTENDED
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


def is_gsm(text: str) -> bool:
    """Return whether the text has only characters of GSM-7."""
    return _ALL.issuperset(text)


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


def count_parts(text: str) -> int:
    """Return the number of parts in which the phone network sends a text. Each is paid for."""
    if is_gsm(text):
        size, alone, each = sum(2 if character in EXTENDED else 1 for character in text), 160, 153
    else:
        size, alone, each = utf16_length(text), 70, 67
    return 1 if size <= alone else -(-size // each)
