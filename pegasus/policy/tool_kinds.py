"""Kinds of tools of other programs, by the harm that a call of one can do once its work has read text from outside.

`pegasus.mcp` sorts the tools of a server: by the owner's lists first, then by what a trusted server says of them. The policy
decides by the kind and the values of a call whether an owner has to be asked.
"""

from __future__ import annotations

from enum import StrEnum


class ToolKind(StrEnum):
    """Harm that a call of a tool can do.

    Example: `ToolKind.ACT` is the kind of every tool of a server that nobody has sorted.
    """

    PRIVATE_READER = "private_reader"
    """Reads the owner's own data, and its arguments reach nobody else."""
    OPEN_READER = "open_reader"
    """Changes nothing, but others may see what it asks for."""
    ACT = "act"
    """Changes something or sends something."""
    DESTRUCTIVE = "destructive"
    """Changes something in a way that cannot be taken back. The values of a call never let it pass by themselves."""
