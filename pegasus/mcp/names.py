"""Names of tools: `<server>__<tool>`, in the characters and the length that all providers take.

Providers allow letters, digits, `_` and `-`, and 64 characters. Other characters become `_`; a name that is too long, and one that
would be the same as another tool's, ends with a hash of the server's own name of the tool. So the name of a tool depends on its
server's list alone, and is the same after a restart.
"""

from __future__ import annotations

import re
from collections.abc import Container
from hashlib import sha256
from typing import Final

LONGEST: Final = 64
"""Characters of a name, at most."""
SEPARATOR: Final = "__"
"""Stands between server and tool. The name of a server may not hold it, so that two servers never have tools of one name."""
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASH: Final = 8
"""Hexadecimal digits of the hash at the end of a name."""


def tool_name(server: str, tool: str, taken: Container[str] = ()) -> str:
    """Return the name under which models call a tool. taken: names that other tools of the server have.

    Example: `tool_name("files", "read.file")` is "files__read_file".
    """
    name = f"{server}{SEPARATOR}{_OTHERS.sub('_', tool)}"
    if len(name) <= LONGEST and name not in taken:
        return name
    digest = sha256(tool.encode("utf-8", "replace")).hexdigest()[:_HASH]
    return f"{name[: LONGEST - _HASH - 1]}_{digest}"
