"""The journal alone, under another schedule for each seed: what was answered stays, and one owner writes to a file.

People have messages accepted and send each again in every world; owners append lines to files, rewrite them, and take files over from
others, who go on as if nothing had happened. The disk refuses now and then, the process is killed, and the power fails.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import partial

import pytest
import trio

from actors import ActorError, Child, Restart, open_supervisor
from actors.testing import Faults, SimulationFailed, simulate
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.storage import (
    Accept,
    Accepted,
    Commit,
    LeaseLost,
    ReadFile,
    ReplaceFile,
    StorageError,
    TakeLease,
    Waiting,
    run_journal,
)
from pegasus.storage import journal as journal_module
from pegasus.storage.volume import Volume
from pegasus.testing.memory_disk import PowerLoss
from tests.simulation.machine import Machine

SEEDS = int(os.environ.get("PEGASUS_SEEDS", "20"))
FIRST = int(os.environ.get("PEGASUS_FIRST_SEED", "0"))
REPLAY = os.environ.get("PEGASUS_REPLAY")
FILES = ("a/one.jsonl", "a/two.jsonl", "b/three.jsonl")
PEOPLE = ChannelInfo("web", "c1", "ann")
WORLDS = 5


class File:
    """A file as its owners know it. lines: those that were answered, in order; open: those of which nobody knows yet."""

    def __init__(self, path):
        self.path = path
        self.owner = 0
        self.lines = []
        self.open = set()
        self.refused = set()

    def end(self):
        """The process has ended: what a failed write has left behind may not have been cut off yet."""
        self.open |= self.refused
        self.refused = set()

    def problem(self, content):
        """What is wrong with the content, "" if nothing is."""
        *found, torn = content.decode().split("\n")
        if torn and not any(line.startswith(torn) for line in (*self.open, *self.lines)):
            return f"{self.path} ends with {torn}, which was refused or never asked for"
        if unexpected := [line for line in found if line not in self.lines and line not in self.open]:
            return f"{self.path} has {unexpected}, which were refused or never asked for"
        if [line for line in found if line in self.lines] != self.lines or len(set(found)) != len(found):
            return f"{self.path} is {found} and not {self.lines} with some of {sorted(self.open)}"
        return ""


class Life:
    """Worlds on one disk. wrong: what was seen to be wrong."""

    def __init__(self, simulation):
        self.random = simulation.random
        self.note = simulation.note
        self.disk = Machine(self.random.choice([0, 0.001, 0.03]))
        self.files = [File(path) for path in FILES]
        self.accepted = {}
        self.messages = 0
        self.unknown = set()
        self.pace = 1
        self.end = ""
        self.owners = 0
        self.wrong = []

    async def run(self):
        for _ in range(WORLDS):
            self.end = self.random.choice(["kill", "power"])
            if self.random.random() < 0.5:
                self.disk.lose_power(self.random.randint(1, 50))
            self.pace = self.random.choice([1, 2, 5])
            await self._one_world(self._work, self.random.uniform(0, 12))
            if self.end == "power":
                self.disk.crash(self.random.choice([0, 0, 10]))
            else:
                self.disk.reopen()
            self.disk.dark = trio.Event()
            for file in self.files:
                file.end()
            self.note(f"a world has ended: {self.end}")
        self.disk.crash(0)
        self.disk.dark = trio.Event()
        await self._one_world(self._look, 100)

    async def _one_world(self, work, seconds):
        child = Child("journal", partial(run_journal, clock=lambda: 0), self.disk, restart=Restart.TEMPORARY)
        try:
            async with open_supervisor([child]) as tree:
                with trio.move_on_after(seconds) as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._cancel_when_over, tree, scope)
                        await work(tree.ref("journal"))
                        nursery.cancel_scope.cancel()
                if not self.disk.dark.is_set():
                    self.disk.lose_power()
        except* (ActorError, PowerLoss, StorageError) as group:
            self.note(f"the process ends: {group.exceptions[0]!r}")

    async def _cancel_when_over(self, tree, scope):
        with suppress(ActorError):
            await tree.ref("journal").wait_stopped()
        scope.cancel()

    async def _work(self, journal):
        await self._look(journal)
        async with trio.open_nursery() as nursery:
            if (
                self.end == "power"
            ):  # a process that ends with a sync that has failed leaves what no other process can know
                nursery.start_soon(self._refuse)
            for file in self.random.choice([self.files, self.files, ()]):
                nursery.start_soon(self._own, journal, file)
            nursery.start_soon(self._write_messages, journal)

    async def _refuse(self):
        while True:
            await trio.sleep(self.pace * self.random.uniform(0, 1))
            self.disk.fail(self.random.randint(1, 3), errno.EIO, self.random.choice([1, 1, 3]))

    async def _insist(self, ask, *args):
        while True:
            with suppress(StorageError):
                return await ask(*args)
            await trio.sleep(self.random.choice([0, 0.1]))

    # ---------------------------------------------------------------- messages

    async def _write_messages(self, journal):
        while True:
            self.messages += 1
            n = self.messages
            self.unknown.add(n)
            with suppress(StorageError):
                await self._accept(journal, n, is_patient=self.random.random() < 0.7)
            self.unknown.discard(n)
            await trio.sleep(self.pace * self.random.choice([0, 0.3, 1]))

    async def _accept(self, journal, n, is_patient=True):
        ask = partial(self._insist, journal.ask) if is_patient else journal.ask
        answer = await ask(Accept, InboundMessage(f"#{n}", PEOPLE, f"m-{n}"))
        assert isinstance(answer, Accepted)
        if self.accepted.setdefault(n, answer.n) != answer.n:
            self.wrong.append(f"message {n} was accepted as {self.accepted[n]} and is not known any more")

    # ---------------------------------------------------------------- files

    async def _look(self, journal):
        """Compare all that is there with all that was answered."""
        for file in self.files:
            content = await journal.ask(ReadFile, file.path)
            if problem := file.problem(content):
                self.wrong.append(problem)
            if content and not content.endswith(b"\n"):  # nobody appends to a piece of a line
                whole = content[: content.rfind(b"\n") + 1]
                await self._insist(journal.ask, ReplaceFile, file.path, whole)
        for n in sorted(self.accepted):
            await self._accept(journal, n)
        accepted, waiting = len(self.accepted), await journal.ask(Waiting)
        if not accepted <= waiting <= accepted + len(self.unknown):
            self.wrong.append(
                f"{waiting} messages wait, {accepted} were accepted, and perhaps {len(self.unknown)} more"
            )

    async def _own(self, journal, file):
        """Owners, one after the other; each goes on for a while when the next one has come."""
        async with trio.open_nursery() as nursery:
            while True:
                file.owner = 0  # either may be the owner until it is answered
                lease = await journal.ask(TakeLease, f"owner of {file.path}")
                self.owners += 1
                file.owner = self.owners
                nursery.start_soon(self._append, journal, file, self.owners, lease)
                await trio.sleep(self.pace * self.random.uniform(0, 2))

    async def _append(self, journal, file, owner, lease):
        for n in range(self.random.randint(2, 6)):
            line = f"{owner}.{n}"
            is_owner = file.owner in (0, owner)
            file.open.add(line)
            try:
                if is_owner and self.random.random() < 0.2:
                    known = await journal.ask(ReadFile, file.path)
                    await journal.ask(ReplaceFile, file.path, known + f"{line}\n".encode(), lease)
                else:
                    await journal.ask(Commit, ((file.path, f"{line}\n".encode()),), (), lease)
            except LeaseLost:
                file.open.discard(line)
                if file.owner == owner:
                    self.wrong.append(f"{owner} owns {file.path}, and its lease is refused")
                return
            except StorageError:
                file.open.discard(line)
                file.refused.add(line)
            else:
                file.open.discard(line)
                file.lines.append(line)
                if not is_owner:
                    self.wrong.append(f"{owner} has written to {file.path}, which is owned by {file.owner}")
            await trio.sleep(self.pace * self.random.choice([0, 0.2, 1]))


def run(seeds=range(1), replay=None, **options):
    """Simulate the lives of these seeds, or repeat one schedule."""
    life = None

    async def main(simulation):
        nonlocal life
        life = Life(simulation)
        await life.run()

    def check(simulation):
        assert not life.wrong, "\n".join(life.wrong)

    return simulate(
        main,
        seeds=seeds,
        replay=replay,
        faults=Faults(delay=600),
        check=check,
        allow=("pegasus.observe",),
        twice=0,
        **options,
    )


def test_what_was_answered_stays_and_a_file_has_one_owner():
    report = run(range(FIRST, FIRST + SEEDS), REPLAY, keep_going=True)
    print(report)


# ------------------------------------------------------------------ a journal that is not as it should be is found out


def check_no_lease(monkeypatch):
    monkeypatch.setattr(journal_module._Journal, "_check_lease", lambda journal, lease: None)


def let_the_last_owner_go_on(monkeypatch):
    check = journal_module._Journal._check_lease

    def late(journal, lease):
        check(journal, lease and type(lease)(lease.owner, lease.token + 1))

    monkeypatch.setattr(journal_module._Journal, "_check_lease", late)


def sync_no_names_of_older_files(monkeypatch):
    monkeypatch.setattr(Volume, "_sync_names", lambda volume, path: None)


def keep_what_was_refused(monkeypatch):
    monkeypatch.setattr(journal_module._Journal, "drop_staged", lambda journal: None)


@pytest.mark.parametrize(
    "sabotage", [check_no_lease, let_the_last_owner_go_on, sync_no_names_of_older_files, keep_what_was_refused]
)
def test_a_journal_that_is_not_as_it_should_be_is_found_out(monkeypatch, sabotage):
    sabotage(monkeypatch)
    with pytest.raises(SimulationFailed):
        run(range(100), shrink=0)
