"""Python's cyclic garbage collector: the only file that changes its settings, with the measurements that are the reason.

A collection walks all objects that are alive. That is in vain while much is made of which nothing is garbage: modules, which live as
long as the process, and the entries of a long file.
"""

from __future__ import annotations

import gc
import linecache
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector within the block, while much is read at once.

    While a long file becomes hundreds of thousands of objects, the collector runs again and again and walks ever more of them.
    Measured by `./scripts/bench main_agent`: loading a session of 100,000 lines took 5.5 times as long as reading the lines with the
    json module, and takes 2.8 to 3 times as long with the collector paused (limit 3). The block must not wait for anything, because
    all other actors would go without a collector.

    >>> with collector_paused():
    ...     entries = [decode(line) for line in lines]
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def imports_uncollected() -> Iterator[None]:
    """Pause the collector while modules are imported, and leave all that they have made out of later collections (`gc.freeze`).

    Measured by `./scripts/bench start`, as multiples of the start of a minimal program: 2.8 without it, 2.6 with it.

    The sources of the methods that attrs has generated are dropped. attrs keeps them for tracebacks, and they take 1 MB. Measured by
    `./scripts/bench doors`: the idle memory of a daemon whose HTTP server has answered a request is 2.16 times that of the minimal
    program with them, 2.12 times without.
    """
    with collector_paused():
        yield
        linecache.clearcache()  # attrs keeps the sources there
        gc.freeze()
