"""How an actor ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never, TypeAlias

import attrs

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
