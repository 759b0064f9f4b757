"""Access tokens of MCP servers, a file for each below `mcp/` in the home, readable by its owner only (0600).

A file is replaced as a whole, so that it is never half written. Whoever holds it may act on the person's behalf at that service, as
with the token of the home; so it is among the files that tools and commands never see.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from pegasus.host import replace_private
from pegasus.messages import Json
from pegasus.wire import decode_object, encode_json

FOLDER: Final = "mcp"
"""Folder of the home."""
_SECRET_KEY: Final = re.compile("token|secret|verifier", re.IGNORECASE)
"""Part of the keys under which secrets stand."""
SHORTEST_SECRET: Final = 8
"""Characters of a text that can be a secret. `token_type` has fewer."""


@attrs.frozen(eq=False, repr=False)
class TokenFile:
    """The file of one server.

    Example: `TokenFile(home.path / "mcp" / "tracker.json").write({"tokens": {...}})`.
    """

    path: Path
    """Place of the file. Neither the file nor its folder need exist."""

    def read(self) -> dict[str, Any]:
        """Return what is in it, {} if there is none or it cannot be read as JSON."""
        try:
            return dict(decode_object(self.path.read_bytes()))
        except (OSError, ValueError):
            return {}

    def write(self, content: Mapping[str, Json]) -> None:
        """Replace it. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(self.path, encode_json(content) + "\n")

    def update(self, **facts: Json) -> None:
        """Replace some facts of it. Raises OSError."""
        self.write({**self.read(), **facts})

    def remove(self) -> None:
        """Remove it, if it is there."""
        with suppress(FileNotFoundError):
            self.path.unlink()


class StoredSecrets:
    """The secrets in all files of a folder, for the mask of logs and results: a server may send a token back.

    Example: `StoredSecrets(home.path / "mcp").read()` returns ("eyJ0eXAi…",). A file is read again when it has changed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {}
        """Content of each file, and its state at that time, by its name."""

    def read(self) -> tuple[str, ...]:
        """Return the secrets. Looks at the folder each time, which takes some microseconds; files are small.

        A file that is just being replaced is read as it was or as it will be, since the replacement is a rename.
        """
        try:
            with os.scandir(self._folder) as entries:
                files = [
                    entry for entry in entries if entry.name.endswith(".json") and entry.is_file(follow_symlinks=False)
                ]
            found = {entry.name: entry.stat(follow_symlinks=False) for entry in files}
        except OSError:
            found = {}
        self._known = {name: self._read_file(name, status) for name, status in found.items()}
        return tuple(secret for _, secrets in self._known.values() for secret in secrets)

    def _read_file(self, name: str, status: os.stat_result) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the state of a file and its secrets."""
        # The inode differs after each replacement, even where size and time are the same.
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._known.get(name)
        if known is not None and known[0] == state:
            return known
        return state, tuple(sorted(_secrets_in(TokenFile(self._folder / name).read())))


def _secrets_in(facts: Mapping[str, Any]) -> set[str]:
    """Return every text under a key that names a secret. Addresses, such as that of the token endpoint, are none."""
    found: set[str] = set()
    for key, value in facts.items():
        if isinstance(value, Mapping):
            found |= _secrets_in(value)
        elif (
            isinstance(value, str) and len(value) >= SHORTEST_SECRET and "://" not in value and _SECRET_KEY.search(key)
        ):
            found.add(value)
    return found
