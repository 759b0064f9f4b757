"""The codes a connection is closed with: ours (interfaces sections 3 and 8.4), and those of RFC 6455 7.4 and its registry."""

from __future__ import annotations

from typing import Final

BAD_HELLO: Final = 4400
UNAUTHORIZED: Final = 4401
GOING_AWAY: Final = 1001
TOO_LARGE: Final = 1009
SERVER_ERROR: Final = 1011
TRY_LATER: Final = 1013
"""Also for a client that does not read: its replies are kept."""
