"""Running commands so that they end for certain, with everything they have started.

`process` runs one command to its end, or until it waits for somebody to type, and keeps its output. `guarded` starts a process that
the caller reads from and writes to while it runs; `background` keeps such commands for one task. All run below a guard, a small
process of its own (`guard`) that ends all of a command; `strays` searches for what is left if a command has attacked its guard.
`terminal_text` makes text of what commands write to a terminal.

Around commands stand walls, as far as the machine can build them. `sandbox` has them, and starts bubblewrap; `landlock` is the other
way to build them, with `mounts` below it; `system_calls` is the filter beneath both. `probe` finds out which work, by a `trial` of
each. `folders` plans what a command sees; `autorun` finds what in it is run by others; `proxy` is
the way of a walled-in command to the network, and `tunnel_names` reads which host is meant in its tunnels.

The parts depend on one another in this direction: `guarded` needs the walls, `process` and `background` need `guarded`.
The guard, Landlock, its mounts and the trial run outside of the daemon, in a bare interpreter, so they import nothing of Pegasus.

No command gets an environment by itself: the caller passes all of it, so no key of the daemon leaks into one by
mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.sandbox.autorun import MOST_ENTRIES, MOST_FOLDERS, MOST_FOUND, AutorunSnapshot
from pegasus.sandbox.folders import Folders, is_within
from pegasus.sandbox.guarded import MARK as CALL_MARK
from pegasus.sandbox.guarded import (
    NO_SANDBOX,
    CommandLimits,
    GuardedProcess,
    ProcessError,
    open_process,
    signal_name,
)
from pegasus.sandbox.landlock import version as landlock_version
from pegasus.sandbox.probe import SandboxError, SandboxProbe, probe_sandbox
from pegasus.sandbox.proxy import Dial, DialError
from pegasus.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from pegasus.sandbox.background import BackgroundCommand, BackgroundCommands, CommandError
    from pegasus.sandbox.process import CommandResult, run_process
    from pegasus.sandbox.terminal_text import TerminalText
else:
    # What runs commands is imported with the first one.
    __getattr__ = late_names(__name__)

__all__ = [
    "CALL_MARK",
    "MOST_ENTRIES",
    "MOST_FOLDERS",
    "MOST_FOUND",
    "NO_SANDBOX",
    "AutorunSnapshot",
    "BackgroundCommand",
    "BackgroundCommands",
    "CommandError",
    "CommandLimits",
    "CommandResult",
    "Dial",
    "DialError",
    "Folders",
    "GuardedProcess",
    "ProcessError",
    "Sandbox",
    "SandboxError",
    "SandboxProbe",
    "TerminalText",
    "is_within",
    "landlock_version",
    "open_process",
    "probe_sandbox",
    "run_process",
    "signal_name",
]
