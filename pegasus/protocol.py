"""The subprotocol's name, and the codes a connection is closed with.

They are ours (interfaces sections 3 and 8.4), or those of RFC 6455 section 7.4 and its registry.
"""

from __future__ import annotations

from typing import Final

SUBPROTOCOL: Final = "pegasus.v1"

BAD_HELLO: Final = 4400
UNAUTHORIZED: Final = 4401
GOING_AWAY: Final = 1001
TOO_LARGE: Final = 1009
SERVER_ERROR: Final = 1011
TRY_LATER: Final = 1013
"""Also for a client that does not read: its replies are kept."""
