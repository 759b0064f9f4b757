"""Parts of the prompt, made of prompt_toolkit's: history file, completion, key bindings, layout.

Decisions about keys are pure functions in `prompt_rules`, effects are methods of `Screen`; this file connects the two with
prompt_toolkit's classes. It is imported only when a terminal is opened.

Everything here runs in the screen's thread, between two turns of its event loop. Completion reads the skills' files and the
history is read from disk in that thread, too: both are small, and only the prompt waits for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import (
    BufferControl,
    CompletionsMenu,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.processors import HighlightIncrementalSearchProcessor
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from pegasus.terminal.prompt_rules import KeyAction, completions, on_enter, on_interrupt
from pegasus.terminal.tty import neutralise, repair_unicode
from pegasus.wire import decode_json, encode_json

# ------------------------------------------------------------------ history

HISTORY_KEPT: Final = 1000
"""Entries kept when the file is trimmed, which happens at the start once it holds twice as many.

Trimming at every start would rewrite the file each time, and lose an entry that another chat appends in that moment.
"""
LONGEST_ENTRY: Final = 20_000
"""Characters above which an entry is remembered for this chat only: a pasted document is no command to recall."""


class HistoryFile(History):
    """History of typed messages in a file: one JSON string a line, readable by its owner alone.

    Never fails: a history that cannot be read or written is one that is not kept. Each entry is appended with one
    write, so that several chats may share the file. It is not synced; a crash of the machine may lose the last entries.

    Example::

        Buffer(history=HistoryFile(home.history))
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the entries, newest first; torn and foreign lines are skipped."""
        entries: list[str] = []
        with suppress(OSError):
            lines = self._path.read_bytes().splitlines()
            entries = [entry for line in lines for entry in _parse_entry(line)]
            if len(lines) > 2 * HISTORY_KEPT:
                entries = entries[-HISTORY_KEPT:]
                self._replace(entries)
        return reversed(entries)

    def store_string(self, string: str) -> None:
        """Append an entry, readable by its owner alone: it may be a password that was pasted into the wrong window."""
        if len(string) <= LONGEST_ENTRY:
            with suppress(OSError):
                self._write(self._path, os.O_APPEND, [string])

    def _replace(self, entries: list[str]) -> None:
        """Write the entries into a new file and rename it: a crash leaves the old file or the new one."""
        aside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        self._write(aside, os.O_TRUNC, entries)
        aside.replace(self._path)

    def _write(self, path: Path, flags: int, entries: list[str]) -> None:
        """Write entries with one call, so that lines of two chats do not mix."""
        text = "".join(encode_json(repair_unicode(entry)) + "\n" for entry in entries)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def _parse_entry(line: bytes) -> Iterable[str]:
    """Yield the entry of a line, nothing for a line that holds none."""
    with suppress(ValueError):
        entry = decode_json(line)
        if isinstance(entry, str) and entry:
            yield entry


# ------------------------------------------------------------------ completion


class CommandCompleter(Completer):
    """Completion of /commands and skills at the start of a message.

    Example::

        Buffer(completer=CommandCompleter(skills), complete_while_typing=is_command)
    """

    def __init__(self, skills: Callable[[], Mapping[str, str]]) -> None:
        self._skills = skills

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what `completions` finds for the text before the cursor, if nothing stands behind it."""
        if document.text_after_cursor or not document.text.startswith("/"):
            return
        for name, meaning in completions(document.text, self._skills()):
            yield Completion(name, start_position=-len(document.text), display_meta=neutralise(meaning))


@Condition
def is_command() -> bool:
    """Return True if the typed text may become a command, so that completions are shown unasked."""
    return get_app().current_buffer.text.startswith("/")


# ------------------------------------------------------------------ keys

KeyEffects: TypeAlias = Mapping[KeyAction, Callable[[], None]]
"""Method of the screen for each action."""


def key_bindings(buffer: Buffer, effects: KeyEffects, thinking: Callable[[], bool]) -> KeyBindings:
    """Return the chat's own keys, beside prompt_toolkit's Emacs keys; they apply while `buffer` has the focus.

    During a search (Ctrl-R) the search field has it, so that Enter and Ctrl-C end the search. thinking: asked at each Ctrl-C.
    """
    keys = KeyBindings()
    focused = has_focus(buffer)
    empty = Condition(lambda: not buffer.text)
    keys.add("enter", filter=focused)(lambda _: effects[on_enter(buffer.text, buffer.cursor_position)]())
    keys.add("escape", "enter", filter=focused)(lambda _: buffer.insert_text("\n"))
    keys.add("c-j", filter=focused)(lambda _: buffer.insert_text("\n"))
    keys.add("c-c", filter=focused)(lambda _: effects[on_interrupt(buffer.text, thinking=thinking())]())
    keys.add("c-d", filter=focused & empty)(lambda _: effects[KeyAction.LEAVE]())
    keys.add("c-z", filter=focused)(lambda _: effects[KeyAction.SUSPEND]())
    return keys


# ------------------------------------------------------------------ layout

# Menus have the terminal's own background: prompt_toolkit's grey ones are illegible on many colour schemes.
STYLE: Final = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "status": "dim",
        "completion-menu": "bg:default noinherit",
        "completion-menu.completion": "bg:default",
        "completion-menu.completion.current": "bg:default reverse noreverse bold",
        "completion-menu.meta.completion": "bg:default dim",
        "completion-menu.meta.completion.current": "bg:default",
        "search-toolbar": "dim",
        "search-toolbar.text": "nodim",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default",
    }
)

_ROWS_BELOW: Final = 3
"""Rows kept free below a text of many lines, for the status and a glimpse of the conversation above."""


def chat_layout(buffer: Buffer, prompt: str, status: Callable[[], StyleAndTextTuples]) -> Layout:
    """Return the layout: the typed text, a search or completion below it, the status line.

    The cursor is in `buffer`. The status line takes no room while its text is empty. Lines of the text that wrap, or
    follow a line break, are indented by the width of `prompt`.
    """
    search = SearchToolbar(backward_search_prompt="search: ", forward_search_prompt="search forward: ")
    margin: StyleAndTextTuples = [("", " " * len(prompt))]

    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", prompt)] if (line, wrapped) == (0, 0) else margin

    text = Window(
        BufferControl(
            buffer,
            search_buffer_control=search.control,
            input_processors=[HighlightIncrementalSearchProcessor()],
            preview_search=True,
        ),
        get_line_prefix=prefix,
        wrap_lines=True,
        height=lambda: Dimension(min=1, max=max(3, get_app().output.get_size().rows - _ROWS_BELOW)),
        dont_extend_height=True,
    )
    line = ConditionalContainer(
        Window(FormattedTextControl(lambda: [("", " " * len(prompt)), *status()]), height=1),
        filter=Condition(lambda: bool(status()[0][1])),
    )
    return Layout(HSplit([text, search, CompletionsMenu(max_height=8), line, Window()]), focused_element=text)
