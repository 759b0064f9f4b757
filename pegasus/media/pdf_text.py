r"""The text of a PDF, read by a process that can be killed (`pdf_child`).

What cannot be read is said in words for the model, since a model that is told nothing believes that there was nothing.

    found = await read_pdf(content, most_characters=20_000)
    found.text       # "[page 1]\nAnnual report …"
    found.problem    # "" or "it is protected by a password"
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import attrs

from pegasus.formatting import plural
from pegasus.sandbox import CommandLimits, ProcessError, run_process
from pegasus.wire import decode_object

MOST_PAGES: Final = 300
"""Pages that are read."""
PATIENCE: Final = 20.0
"""Seconds after which the reading is ended; the pages that were read by then count."""
MEMORY: Final = 640 << 20
"""Bytes that the process may have. The library itself takes some 60 MB."""

_CHILD: Final = Path(__file__).with_name("pdf_child.py")
"""The program; started as a file, so that it imports nothing of this package."""
_PROBLEMS: Final = {
    "password": "it is protected by a password, so it cannot be read without it",
    "damaged": "it is damaged, or no PDF that can be read",
}
"""Problems that the program reports, in words for the model."""


@attrs.frozen(eq=False, repr=False)
class PdfText:
    r"""The outcome of reading a PDF."""

    text: str = ""
    """The text with a mark before each page, cut at the bound; "" if there is a problem."""
    pages: int = 0
    """Pages that the file has; 0 if it is not known."""
    problem: str = ""
    """Reason why there is no text, for the model; "" if there is."""
    left_out: str = ""
    """Description of what was not read, for the model; "" if all of it was."""


async def read_pdf(content: bytes, most_characters: int, *, patience: float = PATIENCE) -> PdfText:
    """Return the text of a PDF, at most `most_characters` of it. Raises nothing but Cancelled.

    Cancelled: the process is ended first, which takes a moment.
    """
    # No files (`file_size`), few processes, and an environment without anything in it. "-I" keeps Python from reading modules of
    # the working directory. The bound of the output leaves room for characters of several bytes and for what JSON escapes.
    limits = CommandLimits(
        memory=MEMORY, processes=4, grace=0.1, output=8 * most_characters + 65_536, flood=64 << 20, file_size=0
    )
    argv = [sys.executable, "-I", "-X", "utf8", str(_CHILD), str(MOST_PAGES), str(most_characters)]
    try:
        result = await run_process(argv, cwd="/", env={}, timeout=patience, limits=limits, stdin=content)
    except ProcessError as error:
        return PdfText(problem=f"it could not be read: {error}")
    lines = _lines(result.stdout)
    # The outcome is judged by what was written, not by the exit code: a process that was killed after some pages has read them.
    first = lines[0] if lines else {}
    if (problem := _PROBLEMS.get(str(first.get("problem")))) is not None:
        return PdfText(problem=problem)
    pages = first.get("pages")
    if type(pages) is not int:
        return PdfText(problem=_cut_short(timed_out=result.timed_out))
    texts = [str(line.get("text", "")).strip() for line in lines[1:]]
    if not any(texts):
        # There is no text. The model is told which of three reasons it is, since each asks for another answer to the person.
        if len(lines) > 1 and all(line.get("failed") for line in lines[1:]):
            return PdfText(pages=pages, problem="its pages are damaged, or inflate to more than is read")
        if len(texts) < min(pages, MOST_PAGES):
            return PdfText(pages=pages, problem=_cut_short(timed_out=result.timed_out))
        return PdfText(pages=pages, problem="it has no text: its pages are pictures, such as scans")
    return _joined(texts, pages, most_characters)


def _joined(texts: list[str], pages: int, most_characters: int) -> PdfText:
    """Return the pages as one text. Whole pages are kept; of the first that does not fit its beginning."""
    parts: list[str] = []
    room, read = most_characters, 0
    for number, text in enumerate(texts, 1):
        part = f"[page {number}]\n{text or '(no text on this page)'}"
        parts.append(part[:room])
        room -= len(part) + 1  # the line break behind it
        if room < 0:
            break
        read = number
    left_out = ""
    if read < pages:
        left_out = f"only {read} of its {plural(pages, 'page')} are shown whole; the rest is left out"
    return PdfText("\n".join(parts), pages, left_out=left_out)


def _cut_short(*, timed_out: bool) -> str:
    """Return why a reading has ended without text."""
    return "reading it took too long" if timed_out else "it is damaged, or needs too much memory to be read"


def _lines(output: str) -> list[dict[str, Any]]:
    """Return the lines of the program. One that is cut off, because it was killed, ends them."""
    found: list[dict[str, Any]] = []
    for line in output.splitlines():
        try:
            found.append(decode_object(line))
        except ValueError:
            break
    return found
