r"""Texts of others as a person who decides about them must see them: nothing hidden, and no address that looks like another one.

    make_visible("rm -rf a\rls")            # "rm -rf a⟨U+000D⟩ls"
    host_notes("https://paypal.com@pay.example/") # ["paypal.com@pay.example leads to pay.example"]

A carriage return or a direction mark lets a command look like another one, and a letter of another alphabet an address. Both are shown
for what they are, on every channel in the same form, before the text is cleaned for its place. The host of an address is found as
browsers find it (WHATWG URL Standard, "host parsing"): what stands before the last `@` is a user name, a backslash ends the host, and
full stops and letters of other widths are mapped to plain ones (Unicode TR46).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final

from pegasus.messages import Json

MOST_NOTES: Final = 10
"""Notes about hosts beside one question. More would hide the question itself."""
LONGEST_SEARCHED: Final = 100_000
"""Characters of a text in which hosts are looked for. A question shows fewer."""

_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"})
"""Categories of Unicode that have no picture of their own, or change the order of writing."""
_BLANK_LETTERS: Final = frozenset(
    "\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5\u180b\u180c\u180d"
    + "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)
"""Characters of other categories that look like nothing: letters and marks without a picture, and variation selectors."""
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,30}:[/\\]{2,}", re.IGNORECASE)
"""Beginning of an address with a host. Browsers take a backslash for a slash. Bounded, since each letter may begin one."""
_LONGEST_LABEL: Final = 63
"""Characters of a label of a host. A longer one leads nowhere, and is slow to write in ASCII."""
_STOPS: Final = str.maketrans("\u3002\uff0e\uff61", "...")
"""Full stops of other scripts, which separate the labels of a host like a plain one."""
_WORD: Final = re.compile(r"""[^\s"'<>()\[\]{},;|`]+""")
"""Stretches of text in which an address may stand."""


def make_visible(text: str) -> str:
    r"""Return the text with each character that cannot be seen as its code: `⟨U+202E⟩`. Newlines and tabs stay.

    >>> make_visible("a\u202eb\r\n\tc")
    'a⟨U+202E⟩b⟨U+000D⟩\n\tc'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in "\n\t" or (character.isprintable() and character not in _BLANK_LETTERS):
        return character
    is_unseen = unicodedata.category(character) in _UNSEEN or character in _BLANK_LETTERS
    return f"⟨U+{ord(character):04X}⟩" if is_unseen else character


def texts_of(value: Json) -> Iterator[str]:
    """Yield all texts in the arguments of a call in their order, keys too."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, Mapping):
            waiting += [each for pair in reversed([*found.items()]) for each in reversed(pair)]
        elif isinstance(found, list | tuple):
            waiting += reversed(found)


def host_notes(text: str) -> list[str]:
    """Return a sentence for each address in a text whose host is not the one that a reader takes it for; at most MOST_NOTES.

    >>> host_notes("mail it to x@раураl.com")
    ['раураl.com is written xn--l-7sba6dbr.com and has letters of another alphabet']
    """
    notes: dict[str, None] = {}
    for word in _WORD.findall(text[:LONGEST_SEARCHED]):
        for note in _notes_about(word):
            notes[note] = None
            if len(notes) == MOST_NOTES:
                return list(notes)
    return list(notes)


def _notes_about(word: str) -> Iterator[str]:
    """Yield what a reader should know about the host in a word, if there is one."""
    scheme = _SCHEME.search(word)
    rest = word[scheme.end() :] if scheme else word
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    user, _, host = authority.rpartition("@")
    if scheme is not None and user:
        yield f"{make_visible(authority)} leads to {make_visible(_ascii_host(host))}"
        return
    host = re.sub(r":\d*$", "", host).strip(".")
    plain = host.translate(_STOPS)
    if "." not in plain.strip("."):
        return
    shown, written = make_visible(host), _ascii_host(host)
    if unicodedata.normalize("NFKC", plain).isascii():
        if not host.isascii():
            yield f"{shown} leads to {written}"
        elif "xn--" in written:
            yield f"{shown} stands for {make_visible('.'.join(map(_decoded, written.split('.'))))}"
    elif scheme is not None or user or ("xn--" in written and not _is_prose(plain)):
        yield f"{shown} is written {written} and has letters of another alphabet"


def _is_prose(text: str) -> bool:
    """Return whether a word with full stops is no host, such as the end of one sentence and the beginning of the next."""
    last = text.rpartition(".")[2]
    return last.casefold() != last or not last.isascii()


def _ascii_host(host: str) -> str:
    """Return a host in the form in which it is looked up. A label that is too long for one stays."""
    labels = unicodedata.normalize("NFKC", host.translate(_STOPS)).casefold().split(".")
    return ".".join(
        label
        if label.isascii() or len(label) > _LONGEST_LABEL
        else f"xn--{label.encode('punycode', 'replace').decode('ascii')}"
        for label in labels
    )


def _decoded(label: str) -> str:
    """Return a label of a host in its own alphabet. One that is no punycode stays."""
    try:
        return label if not label.startswith("xn--") else label[4:].encode("ascii").decode("punycode")
    except (UnicodeError, ValueError):
        return label
