"""Access tokens of MCP servers, a file for each below `mcp/` in the home, readable by its owner only (0600).

A file is replaced as a whole, so that it is never half written. Whoever holds it may act on the person's behalf at that service, as
with the token of the home; so it is among the files that tools and commands never see, and what is in it is masked in logs and results
(`pegasus.redaction.SecretFolder`): a server may send a token back.
"""

from __future__ import annotations

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


@attrs.frozen(eq=False, repr=False)
class TokenFile:
    """The file of one server."""

    path: Path
    """Place of the file. Neither the file nor its folder need exist."""

    def read(self) -> dict[str, Any]:
        """Return what is in it, {} if there is none or it cannot be read as JSON."""
        try:
            return dict(decode_object(self.path.read_bytes()))
        except (OSError, ValueError):
            return {}

    def write(self, content: Mapping[str, Json]) -> None:
        """Replace the content of the file. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(self.path, encode_json(content) + "\n")

    def update(self, **facts: Json) -> None:
        """Replace some facts of it. Raises OSError."""
        self.write({**self.read(), **facts})

    def remove(self) -> None:
        """Remove it, if it is there."""
        with suppress(FileNotFoundError):
            self.path.unlink()
