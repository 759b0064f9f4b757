"""Messages that call a skill by name. Apart from `skilled`, which is slow to import: this much is asked of every message."""

from __future__ import annotations

import re
from typing import Final

from pegasus.conversation import sanitize_for_prompt

_CALL: Final = re.compile(r"/([a-z0-9][a-z0-9_-]{0,63})(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)


def parse_skill_call(text: str) -> tuple[str, str] | None:
    """Name and arguments of a message that calls something: `/name args`; None for another.

    Phones begin with a capital letter, and Telegram has `_` for `-`: neither matters.
    """
    if "/" not in text:
        return None
    match = _CALL.fullmatch(sanitize_for_prompt(text).strip())
    return (match[1].lower().replace("_", "-"), (match[2] or "").strip()) if match else None
