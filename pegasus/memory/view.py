"""Memory as people and programs are shown it: its files; a change: who, when, what for, and the lines that went and came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from pegasus.memory.changes import Change
from pegasus.memory.index import MemoryFile
from pegasus.messages import Json

SHOWN: Final = 2_000
"""Characters of what went, and of what came; the rest of a long change is in the log."""


def files_view(files: Iterable[MemoryFile]) -> dict[str, Json]:
    """As JSON: files [{path, summary, size, marked}]."""
    return {
        "files": [
            {"path": one.path, "summary": one.summary, "size": one.size, "marked": list(one.marks)} for one in files
        ]
    }


def view_of(change: Change) -> dict[str, Json]:
    """As JSON: n, ts, path, how, by {kind, task, user, channel, why, source}, undoes?, removed, added (null: not kept)."""
    by = {key: value for key, value in attrs.asdict(change.by).items() if value}
    view: dict[str, Json] = {"n": change.n, "ts": change.ts, "path": change.path, "how": change.how, "by": by}
    if change.undoes:
        view["undoes"] = change.undoes
    splices = change.splices
    view["removed"] = None if splices is None else _shown("".join(splice.old for splice in splices))
    view["added"] = None if splices is None else _shown("".join(splice.new for splice in splices))
    return view


def _shown(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n… ({len(text) - SHOWN:,} more characters)\n"
