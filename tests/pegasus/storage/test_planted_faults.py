"""Each check that keeps a second writer from doing harm is left out of a copy of the journal, and a test has to find that."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest
import trio

from pegasus.storage import Commit, StorageError
from pegasus.storage import journal as journal_module
from pegasus.testing.memory_disk import MemoryDisk

from . import test_fencing as promises
from .conftest import run_journal

FAULTS = {
    "the lease of a commit is not looked at": ("            self._check_lease(request.lease)\n", ""),
    "further leases of a commit are not looked at": ("for lease in request.leases:", "for lease in ():"),
    "the lease of a file is not looked at": ('self._check_lease(getattr(message, "lease", None))', "pass"),
    "an item is taken without a lease": ("if isinstance(message, TakeItem) and", "if False and"),
    "an item is ended without a lease": (
        "if not self._is_lost(lease):\n                    self._complete(n)",
        "if True:\n                    self._complete(n)",
    ),
    "an item is given back without a lease": (
        "if not self._is_lost(lease):\n                    self._inbox.queue.take_back(n)",
        "if True:\n                    self._inbox.queue.take_back(n)",
    ),
    "the newest lease does not count": ("lease.token < self._leases", "lease.token <= self._leases"),
    "the lines before a commit do not count": ("if lines[path] != commit.after:", "if False:"),
    "a commit with other lines before it is done": ("if not is_done:", "if False:"),
    "a commit that is repeated is refused": ("if not is_done:", "if True:"),
    "staged lines count though they were refused": ("        self._lines.clear()\n", ""),
    "staged lines do not count though they are written": ('lines[path] += data.count(b"\\n")', "pass"),
    "lines are not counted again": (
        "self._lines.pop(path, None)\n                return await run(Volume.replace",
        "return await run(Volume.replace",
    ),
    "lines are not counted again after an archive": (
        "self._lines.pop(path, None)\n                # A session",
        "# A session",
    ),
    "the version of rows does not count": ("if known < version:", "if False:"),
}


def journal_with(old, new):
    """Return the journal's actor from a copy of its module in which one text is replaced."""
    source = inspect.getsource(journal_module)
    assert source.count(old) == 1, f"planted once: {old!r}"
    copy = ModuleType(f"{journal_module.__name__}_copy")
    exec(compile(source.replace(old, new), journal_module.__file__, "exec"), vars(copy))
    return copy.run_journal


async def appends_what_was_refused(journal, disk):
    await journal.append(promises.SESSION, b"1\n")
    disk.fail(1)
    commit = (Commit, ((promises.SESSION, b"2\n"),), (), None, (), 1)
    with pytest.raises(StorageError):
        await journal.ask(*commit)
    await journal.ask(*commit)
    assert disk.content(promises.SESSION) == b"1\n2\n"


async def keeps_promises(actor):
    """Return whether a journal passes the tests of fencing."""

    async def passes(check, *args):
        disk, is_kept = MemoryDisk(), True
        try:
            async with run_journal(disk, actor=actor) as journal:
                with trio.fail_after(5):
                    await check(journal, *(args or (disk,) * (check is appends_what_was_refused)))
        except* (pytest.fail.Exception, Exception):
            is_kept = False
        return is_kept

    checks = [
        *(
            (promises.test_a_request_with_a_lease_that_is_lost_has_no_effect, each)
            for each in promises.REFUSED.values()
        ),
        (promises.test_a_note_with_a_lease_that_is_lost_has_no_effect,),
        (promises.test_the_newest_lease_lets_everything_through,),
        (promises.test_a_commit_that_is_repeated_appends_and_posts_once,),
        (promises.test_repeated_commits_of_one_batch_append_once,),
        (promises.test_a_commit_that_was_decided_by_other_lines_fails, 0),
        (promises.test_lines_are_counted_again_when_the_file_was_replaced,),
        (promises.test_rows_that_somebody_else_has_changed_are_not_overwritten,),
        (appends_what_was_refused,),
    ]
    return all([await passes(*each) for each in checks])


async def test_the_journal_itself_keeps_its_promises():
    assert await keeps_promises(journal_with("_OWN_FILES = (", "_OWN_FILES = ("))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_check_that_is_missing_is_found(fault):
    assert not await keeps_promises(journal_with(*fault))
