"""An actor's address, for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Never, TypeVar, TypeVarTuple, cast

import trio
from trio.lowlevel import checkpoint

from actors._ask import Answer, ask, request
from actors._exits import Down, Killed
from actors._reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._cell import Cell
    from actors._exits import Exit

M = TypeVar("M", contravariant=True)
R = TypeVar("R")
Args = TypeVarTuple("Args")


class Ref(Generic[M]):
    """A logical address: it stays the same over restarts, and may be taken before the actor exists.

    Two refs are equal when they are the same address of the same tree.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def __repr__(self) -> str:
        return f"<Ref {self._cell.path}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other._cell is self._cell

    def __hash__(self) -> int:
        return hash(id(self._cell))

    @property
    def path(self) -> str:
        """Names from the root's child down, joined by "/"."""
        return self._cell.path

    @property
    def alive(self) -> bool:
        """It is up and was not told to stop."""
        life = self._cell.life
        return life is not None and life.up and not life.done and not life.stopping

    async def tell(self, message: M) -> None:
        """Send. Waits for room if the mailbox says so, else raises MailboxFull. On cancel nothing was sent.

        Nobody there is no error: the message becomes a DeadLetter event. Only after the whole tree has ended, when
        nobody could hear of that, it is ActorDied.
        """
        await checkpoint()
        if not self._cell.offer(message):
            await self._cell.wait_for_room(message)

    def tell_nowait(self, message: M) -> None:
        """Send without waiting; MailboxFull when there is no room. Otherwise as `tell`."""
        if not self._cell.offer(message):
            raise self._cell.full(message)

    async def ask(self, make: Callable[[Reply[R], *Args], M], *args: *Args, timeout: float | None = None) -> R:
        """Send `make(reply, *args)` and wait for the answer, at most `timeout` seconds.

        Raises AskTimeout, at the own or an inherited deadline; ActorDied, as soon as no answer can come; AskCycle;
        MailboxFull; or what Reply.fail was given. After an error or a cancel the asker has left.
        """
        return cast("R", await ask(self._cell, make, args, timeout))

    async def request(self, make: Callable[[Reply[R], *Args], M], *args: *Args) -> Answer[R]:
        """Send `make(reply, *args)` without waiting for the answer; `get` it later, or drop it to leave."""
        return Answer(await request(self._cell, make, args))

    async def wait_stopped(self) -> Exit | None:
        """Wait until the actor neither runs nor will run again; how its last run ended, None if it never ran."""
        await trio.lowlevel.checkpoint()
        await self._cell.wait_gone()
        return self._cell.exit


async def watch(ref: Ref[M]) -> Down:
    """Wait until the actor's present run ends, however and whatever comes after it; at once if it is down already.

    An actor that never ran is Killed("it never ran").
    """
    await trio.lowlevel.checkpoint()
    life = ref._cell.life
    if life is not None:
        await life.wait_ended()
    exit = None if life is None else life.exit
    return Down(cast("Ref[Never]", ref), Killed("it never ran") if exit is None else exit)
