"""Which keys ask which question; the answers are functions in `keys`, the deeds are the screen's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from pegasus.terminal.keys import Verdict, on_enter, on_interrupt

Deeds: TypeAlias = Mapping[Verdict, Callable[[], None]]


def bindings(buffer: Buffer, deeds: Deeds, thinking: Callable[[], bool]) -> KeyBindings:
    """The chat's own keys, beside prompt_toolkit's Emacs keys; they hold while `buffer` has the focus."""
    keys = KeyBindings()
    here = has_focus(buffer)

    @keys.add("enter", filter=here)
    def enter(event: KeyPressEvent) -> None:
        deeds[on_enter(buffer.text, buffer.cursor_position)]()

    @keys.add("escape", "enter", filter=here)
    @keys.add("c-j", filter=here)
    def new_line(event: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add("c-c", filter=here)
    def interrupt(event: KeyPressEvent) -> None:
        deeds[on_interrupt(buffer.text, thinking=thinking())]()

    @keys.add("c-d", filter=here & Condition(lambda: not buffer.text))
    def end(event: KeyPressEvent) -> None:
        deeds[Verdict.LEAVE]()

    @keys.add("c-z", filter=here)
    def suspend(event: KeyPressEvent) -> None:
        deeds[Verdict.SUSPEND]()

    return keys
