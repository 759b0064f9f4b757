"""The process that reads an attachment: a program of this folder with few rights, which can be killed at any time.

It writes a JSON line for each part of what it has read, so whatever it wrote before it was ended counts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import attrs

from pegasus.sandbox import CommandLimits
from pegasus.wire import decode_object

PATIENCE: Final = 20.0
"""Seconds after which the reading is ended."""
MEMORY: Final = 640 << 20
"""Bytes that the process may have. The libraries themselves take some 60 MB."""
BY_TASK: Final = "a task can, with save_attachment and this path"
"""Hint at what the model can do with a file that it is only told about. The path follows in the next line."""


@attrs.frozen(eq=False, repr=False)
class Reading:
    """The text of an attachment, or why there is none."""

    text: str = ""
    """Its text; "" if there is none, and then `note` says why."""
    note: str = ""
    """Words about it for a model, such as "3 pages"."""
    left_out: str = ""
    """Description of what is missing of the text; "" if nothing is."""
    is_voice: bool = False
    """The text is the sender's own words."""


async def run_reader(
    program: Path, argument: str, content: bytes, most_characters: int, patience: float
) -> tuple[list[dict[str, Any]], bool]:
    """Return the lines that a program has written about a file, and whether its time was up. Raises ProcessError.

    program: started as a file, so that it imports nothing of this package. argument: its first; the second is `most_characters`.
    Cancelled: the process is ended first, which takes a moment.
    """
    # No files (`file_size`), few processes, and an environment without anything in it. "-I" keeps Python from reading modules of
    # the working directory. The bound of the output leaves room for characters of several bytes and for what JSON escapes.
    limits = CommandLimits(
        memory=MEMORY, processes=4, grace=0.1, output=8 * most_characters + 65_536, flood=64 << 20, file_size=0
    )
    argv = [sys.executable, "-I", "-X", "utf8", str(program), argument, str(most_characters)]
    from pegasus.sandbox import run_process

    result = await run_process(argv, cwd="/", env={}, timeout=patience, limits=limits, stdin=content)
    return _lines(result.stdout), result.timed_out


def _lines(output: str) -> list[dict[str, Any]]:
    """Return the lines of the program. One that is cut off, because it was killed, ends them."""
    found: list[dict[str, Any]] = []
    # Not `splitlines`: a text may hold other ends of lines, which JSON does not escape.
    for line in output.split("\n"):
        try:
            found.append(decode_object(line))
        except ValueError:
            break
    return found
