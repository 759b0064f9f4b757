r"""The text of a PDF, read by a process that can be killed (`pdf_child`).

What cannot be read is said in words for the model, since a model that is told nothing believes that there was nothing.

    found = await read_pdf(content, most_characters=20_000)
    found.text    # "[page 1]\nAnnual report …"
    found.note    # "3 pages" or "it is protected by a password"
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pegasus.formatting import plural
from pegasus.media.reader_process import PATIENCE, Reading, run_reader
from pegasus.sandbox import ProcessError

MOST_PAGES: Final = 300
"""Pages that are read."""
_CHILD: Final = Path(__file__).with_name("pdf_child.py")
_PROBLEMS: Final = {
    "password": "it is protected by a password, so it cannot be read without it",
    "damaged": "it is damaged, or no PDF that can be read",
}
"""Problems that the program reports, in words for the model."""


async def read_pdf(content: bytes, most_characters: int, *, patience: float = PATIENCE) -> Reading:
    """Return the text of a PDF with a mark before each page, at most `most_characters` of it. Raises nothing but Cancelled.

    Cancelled: the process is ended first, which takes a moment.
    """
    try:
        lines, timed_out = await run_reader(_CHILD, str(MOST_PAGES), content, most_characters, patience)
    except ProcessError as error:
        return Reading(note=f"it could not be read: {error}")
    # The outcome is judged by what was written, not by the exit code: a process that was killed after some pages has read them.
    first = lines[0] if lines else {}
    if (problem := _PROBLEMS.get(str(first.get("problem")))) is not None:
        return Reading(note=problem)
    pages = first.get("pages")
    if type(pages) is not int:
        return Reading(note=_cut_short(timed_out=timed_out))
    texts = [str(line.get("text", "")).strip() for line in lines[1:]]
    if not any(texts):
        # There is no text. The model is told which of three reasons it is, since each asks for another answer to the person.
        if len(lines) > 1 and all(line.get("failed") for line in lines[1:]):
            return Reading(note="its pages are damaged, or inflate to more than is read")
        if len(texts) < min(pages, MOST_PAGES):
            return Reading(note=_cut_short(timed_out=timed_out))
        return Reading(note="it has no text: its pages are pictures, such as scans")
    return _joined(texts, pages, most_characters)


def _joined(texts: list[str], pages: int, most_characters: int) -> Reading:
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
    return Reading("\n".join(parts), plural(pages, "page"), left_out)


def _cut_short(*, timed_out: bool) -> str:
    """Return why a reading has ended without text."""
    return "reading it took too long" if timed_out else "it is damaged, or needs too much memory to be read"
