"""What a task can know about the actor that it belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors._life import Life
    from actors._reply import Exchange

CURRENT: ContextVar[Life | None] = ContextVar("actors.current", default=None)
"""The run of an actor that this task belongs to; tasks that the actor starts inherit it."""
HANDLING: ContextVar[Exchange | None] = ContextVar("actors.handling", default=None)
"""The question that this task works on, so that it inherits its deadline."""
