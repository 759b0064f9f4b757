"""The process's limit of open file descriptors.

Every connection, file and subprocess of the daemon needs descriptors, and most systems start a process with a soft limit of
1,024 (macOS: 256), which a few hundred clients exhaust. The hard limit is much higher, and a process may raise its soft limit up
to it. Very high limits are not taken, because some programs that the daemon starts close every possible descriptor one by one.
"""

from __future__ import annotations

import resource

WANTED_DESCRIPTORS = 8192
"""The soft limit that is asked for: the gateway's connections, and many times what everything else needs."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit to WANTED_DESCRIPTORS, or as far as the system allows. Return the limit that is in force.

    Never lowers it, and never fails: where it cannot be raised, the present limit is returned. An unlimited one is returned
    as WANTED_DESCRIPTORS, so that the gateway can derive from it how many connections it takes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return WANTED_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS allows less than its hard limit says
        return soft
    return wanted
