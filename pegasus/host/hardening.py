"""Protection of the daemon's process against other processes of the same user.

The daemon holds secrets in its environment and its memory: API keys, the gateway's token, what people wrote. By default
Linux lets every process of the same user read them through `/proc/<pid>/environ` and `/proc/<pid>/mem`, and lets it
attach a debugger. Commands that the agent runs are such processes, and a model that was misled by a web page decides
what they are. A process that is not "dumpable" (prctl(2), PR_SET_DUMPABLE) is closed to them: its files in `/proc`
belong to root, ptrace(2) is refused, and a crash leaves no core file with secrets in it. Processes with the capability
CAP_SYS_PTRACE, root's among them, may still look.

The attribute is reset by execve(2), so that programs which the daemon starts are not affected.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
"""Number of the option in <linux/prctl.h>; Python has no name for it."""


def forbid_inspection() -> bool:
    """Make this process non-dumpable; call it before secrets are read. Return False where the system cannot do that.

    Never raises: on other systems than Linux nothing happens, since a daemon without this protection is better than none.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
