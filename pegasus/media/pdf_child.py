"""Program that reads a PDF on its standard input and writes its text, one JSON line a page. Run by `pdf_text`, never imported.

A PDF comes from a stranger, and reading one means inflating streams and following references as it wishes. So it is done in a process
of its own that has nothing to lose: `pdf_text` lets it write no file, limits its memory and processes, and has it killed when its
time is up. It imports nothing of Pegasus, so that it starts fast. What it has read before it is ended counts.

    {"pages": 12}                          first, when the file can be read at all
    {"page": 1, "text": "…", "failed": false}    for each page, in order
    {"problem": "password"} or "damaged"   instead of either
"""

from __future__ import annotations

import json
import logging
import sys
from io import BytesIO

from pypdf import PdfReader
from pypdf.errors import FileNotDecryptedError, WrongPasswordError


def main(most_pages: int, most_characters: int) -> None:
    """Read at most so many pages and characters, and write them.

    Pages come one by one and are flushed, so that those before a hang or a kill count. The library raises errors of many kinds
    for a damaged file, so that all are caught: one page that cannot be read does not take the others with it.
    """
    logging.disable()
    try:
        reader = PdfReader(BytesIO(sys.stdin.buffer.read()))
        if reader.is_encrypted and not reader.decrypt(""):  # a PDF that only restricts printing opens without one
            return say(problem="password")
        count = len(reader.pages)
    except (FileNotDecryptedError, WrongPasswordError):
        return say(problem="password")
    except Exception:
        return say(problem="damaged")
    say(pages=count)
    room = most_characters
    for number in range(min(count, most_pages)):
        try:
            text, has_failed = reader.pages[number].extract_text()[: room + 1], False
        except MemoryError:
            # There is no room for this page, so there is none for the next ones either.
            return None
        except Exception:  # the page is damaged, or inflates to more than the library allows
            text, has_failed = "", True
        say(page=number + 1, text=text, failed=has_failed)
        room -= len(text)
        if room < 0:
            break
    return None


def say(**facts: object) -> None:
    """Write a line. Half a character, which a damaged font may give, is replaced."""
    line = json.dumps(facts, ensure_ascii=False).encode("utf-8", "replace")
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.setrecursionlimit(2_000)
    main(int(sys.argv[1]), int(sys.argv[2]))
