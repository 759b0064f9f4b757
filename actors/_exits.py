"""How an actor ended, and how an exception says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Never, TypeAlias

import attrs
import trio

from actors._errors import ActorError

if TYPE_CHECKING:
    from actors._ref import Ref


@attrs.frozen
class Normal:
    """It returned by itself."""


@attrs.frozen
class Stopped:
    """It was told to stop and ended within its time."""


@attrs.frozen
class Crashed:
    """It raised `error`, whose traceback is kept; of a group that holds one real error, that error."""

    error: BaseException


@attrs.frozen
class Killed:
    """It was told to stop, did not end within its time and was cancelled; `reason` says which time that was."""

    reason: str


Exit: TypeAlias = Normal | Stopped | Crashed | Killed


@attrs.frozen(eq=False)
class Down:
    """The actor that was watched has ended."""

    ref: Ref[Never]
    exit: Exit


def describe(exit: Exit) -> str:
    """In words for people."""
    match exit:
        case Crashed(error):
            what = error.brief if isinstance(error, ActorError) else error
            return f"crashed with {type(error).__name__}: {what}"
        case Killed(reason):
            return f"killed, {reason}"
        case Normal():
            return "returned"
        case Stopped():
            return "stopped"


def passes_through(error: BaseException) -> bool:
    """Whether it is Trio's own and no supervisor's business."""
    own = trio.Cancelled | GeneratorExit | trio.TrioInternalError
    return any(isinstance(leaf, own) for leaf in _leaves(error))


def cause_of(error: BaseException) -> BaseException:
    """What is worth telling: of a group, what ends the program, else its one real error, else all of it."""
    leaves = tuple(_leaves(error))
    return next((leaf for leaf in leaves if ends_program(leaf)), leaves[0] if len(leaves) == 1 else error)


def ends_program(error: BaseException) -> bool:
    """Whether the whole tree has to end for it."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


def is_end_of_inbox(error: BaseException) -> bool:
    """Whether it is nothing but what an inbox raises when the actor is told to stop."""
    return all(isinstance(leaf, trio.EndOfChannel) for leaf in _leaves(error))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error
