"""Whether anybody can still answer a question whose message is finished.

An actor that forgets to answer keeps the Reply alive all the same: its loop variable, and the names that a match
statement has bound, hold it until the next message comes. So when an actor asks for its next message, the references
to the Reply of the last one are counted. Those of variables that no code will read before it has written them (a
compiler would call them dead) do not count. If no other is left, nobody can answer, and the asker hears so at once.

All that is unclear counts as kept. Such a Reply fails its asker when it is garbage collected or its actor ends.
"""

from __future__ import annotations

import dis
import inspect
import sys
from functools import lru_cache
from types import CodeType, FrameType

ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
GOES_ON_ELSEWHERE = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
JUMPS = frozenset(dis.hasjrel + dis.hasjabs)


def is_kept(message: list[object], field: str, frame: FrameType | None) -> bool:
    """Whether the Reply in this field of a finished message may still be used.

    message: the only item, and not held by the caller in any other way. frame: the innermost one of the actor's task.
    """
    reply = [getattr(message[0], field)]
    dead_messages = dead_replies = 0
    while frame is not None and frame.f_code.co_flags & ASYNC:
        for held in _held_by_dead_variables(frame):
            dead_messages += held == id(message[0])
            dead_replies += held == id(reply[0])
        frame = frame.f_back
    return _references(message) > dead_messages or _references(reply) > dead_replies + 1  # + 1: the message's field


def _references(box: list[object]) -> int:
    """How many references there are besides that of the box."""
    return sys.getrefcount(box[0]) - _OWN


_OWN = 0
_OWN = _references([object()])


def _held_by_dead_variables(frame: FrameType) -> list[int]:
    """The id of what each variable holds that will not be read before it is written."""
    live = _live_after(frame.f_code, frame.f_lasti)
    names = frame.f_code.co_varnames
    values = frame.f_locals
    held = [id(values[name]) for name in names if name in values and name not in live]
    if sys.version_info < (3, 13):
        values.clear()  # a snapshot, which would keep everything alive
    return held


@lru_cache(maxsize=1024)
def _live_after(code: CodeType, at: int) -> frozenset[str]:
    """The variables that may be read after the instruction at this offset, before they are written."""
    instructions = [one for one in dis.get_instructions(code) if one.offset >= 0]
    now = max(one.offset for one in instructions if one.offset <= at)  # `at` may lie in an instruction's cache
    after = _successors(code, instructions)
    live: dict[int, frozenset[str]] = {one.offset: frozenset() for one in instructions}
    changed = True
    while changed:
        changed = False
        for one in reversed(instructions):
            read, written = _variables(one)
            before = _union(live, after[one.offset]) - written | read
            changed |= before != live[one.offset]
            live[one.offset] = before
    cells = code.co_cellvars  # an inner function may read those at any time
    return _union(live, after[now]) | frozenset(cells)


def _union(live: dict[int, frozenset[str]], offsets: list[int]) -> frozenset[str]:
    return frozenset[str]().union(*(live[offset] for offset in offsets))


def _successors(code: CodeType, instructions: list[dis.Instruction]) -> dict[int, list[int]]:
    """By offset: where the execution may go on, exceptions included."""
    following = [one.offset for one in instructions[1:]]
    after: dict[int, list[int]] = {}
    for one, following_one in zip(instructions, [*following, None], strict=True):
        targets = [one.argval] if one.opcode in JUMPS else []
        if following_one is not None and one.opname not in GOES_ON_ELSEWHERE | ENDS:
            targets.append(following_one)
        after[one.offset] = targets
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        for offset in range(entry.start, entry.end, 2):
            if offset in after:
                after[offset].append(entry.target)
    return after


def _variables(one: dis.Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """Which variables an instruction reads, and which it writes (before or after; two-in-one instructions do both)."""
    if "_FAST" not in one.opname:
        return frozenset(), frozenset()
    names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
    if one.opname == "STORE_FAST_LOAD_FAST":
        return frozenset(names[1:]) - frozenset(names[:1]), frozenset(names[:1])
    if one.opname.startswith(("STORE_FAST", "DELETE_FAST")):
        return frozenset(), frozenset(names)
    return frozenset(names), frozenset()
