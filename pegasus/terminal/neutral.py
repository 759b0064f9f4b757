"""Removal of control characters from text that strangers wrote, before it is printed on a terminal.

A terminal executes the control sequences in its input: an escape sequence can retitle the window, write to the clipboard
or repaint an earlier line; a bidirectional override can make a command read as another one. So whatever the agent says, or a
web page that it quotes, or the name of somebody's task, is shown as text only. Controls become the visible pictures Unicode has
for them (ESC is ␛), so that nobody has to guess why half a message is missing; characters that are invisible by design are
dropped.

The rule is a list of what is removed, not of sequences that are recognised: terminals differ in what they accept, and a parser of
sequences that misses one has failed. Of visible text only a few flags are lost, which Unicode writes with tag characters. The
function is idempotent, so that it may be applied twice.
"""

from __future__ import annotations

import re
from typing import Final

_HARMFUL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1 (0x9b is a CSI to some terminals)
    "\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidirectional
    "\u2028\u2029"  # line and paragraph separators
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"  # shorthand, music, tags (hidden ASCII)
    "\ud800-\udfff]"  # halves of surrogate pairs: no encoder takes them
)
"""Characters that must not reach a terminal."""
_LINE_ENDS: Final = re.compile("\r\n|[\r\u2028\u2029]")
"""Line ends that become a newline. A carriage return alone would let a line overwrite itself."""


def neutralise(text: str) -> str:
    r"""Return the text without control characters. Newlines and tabs stay; other line ends become newlines.

    >>> neutralise("a\x1b[31mred\u202eb")
    'a␛[31mredb'
    """
    return _HARMFUL.sub(_replacement, _LINE_ENDS.sub("\n", text))


def repair_unicode(text: str) -> str:
    """Return typed text as valid Unicode: bytes from the keyboard that are not UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _replacement(match: re.Match[str]) -> str:
    """Return the visible picture of a control character, U+FFFD for one without a picture, nothing for invisible ones."""
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return "\ufffd" if code <= 0x9F or 0xD800 <= code <= 0xDFFF else ""
