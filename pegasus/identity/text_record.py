"""The record of the owner's texts: what the files of the workspace say that are part of the prompt, kept outside of the workspace.

    {"texts":{"AGENTS.md":"Write tests first."},"doubted":{"SOUL.md":"…"},"programsRan":true}

It is written before the first program runs that could change the files, and again when all have ended (`WorkspaceFiles`). So it says
after a crash which text was the owner's, and whether anybody else could write since. Commands cannot reach it: it lies in the home.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from pegasus.host import write_private
from pegasus.observe import get_logger
from pegasus.wire import WireError, decode_object, encode_json, from_wire, to_wire

_log = get_logger("identity")


@attrs.frozen(eq=False, repr=False)
class TextRecord:
    """The texts of an owner: `TextRecord({"AGENTS.md": "Write tests first."})`."""

    texts: Mapping[str, str]
    """Texts in force, by the name of the file."""
    doubted: Mapping[str, str] = attrs.field(factory=dict)
    """Texts that were found and that nobody has accepted."""
    programs_ran: bool = False
    """Programs that can write in the workspace were running when this was written, or may have begun since."""


NOTHING_KNOWN = TextRecord({}, programs_ran=True)
"""The record in place of one that cannot be read: every file is doubted."""


def read_record(path: Path) -> TextRecord | None:
    """Return the record, None if there is none yet. One that cannot be read makes every file doubted, and is logged."""
    try:
        return from_wire(decode_object(path.read_bytes()), TextRecord)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, WireError) as error:
        _log.warning("the record of the owner's texts cannot be read", file=str(path), error=str(error))
        return NOTHING_KNOWN


def write_record(path: Path, record: TextRecord) -> None:
    """Replace the record; it is on disk then. Raises HomeError."""
    write_private(path, encode_json(to_wire(record)) + "\n")
