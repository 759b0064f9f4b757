"""Parts of the prompt, made of prompt_toolkit's: reading of the terminal, history, completion, key bindings, layout.

Decisions about keys are pure functions in `prompt_rules`, effects are methods of `Screen`; this file connects the two with
prompt_toolkit's classes. It is imported only when a terminal is opened.

Everything here runs in the screen's thread, between two turns of its event loop. Completion reads the skills' files and the
history is read from disk in that thread, too: both are small, and only the prompt waits for them.
"""

from __future__ import annotations

import fcntl
import sys
import termios
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, get_common_complete_suffix
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, has_focus, is_done
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    ScrollbarMargin,
    UIContent,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenuControl
from prompt_toolkit.layout.processors import (
    HighlightIncrementalSearchProcessor,
    Processor,
    Transformation,
    TransformationInput,
)
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from pegasus.terminal.attachments import mention_dropped
from pegasus.terminal.completion import Suggestions, choices, may_have_choices
from pegasus.terminal.history import LONGEST_ENTRY, HistoryFile
from pegasus.terminal.leaving import LeaveQuestion
from pegasus.terminal.pasted import PastedTexts
from pegasus.terminal.prompt_rules import KeyAction, on_enter, on_interrupt
from pegasus.terminal.tty import is_utf8, neutralise

# ------------------------------------------------------------------ reading

_PASTE_BEGINS: Final = "\x1b[200~"
_PASTE_ENDS: Final = "\x1b[201~"
"""Marks that a terminal puts around a pasted text, both of the same length."""
_PIECE: Final = 1 << 16
"""Bytes that are read at a time. prompt_toolkit's 1,024 would go through its event loop a thousand times for a megabyte."""


def _waiting_bytes(fd: int) -> int:
    """Return how many bytes a terminal holds that nobody has read; 0 where the system does not tell."""
    with suppress(OSError):
        return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4), sys.byteorder)
    return 0


class PasteReader(PosixStdinReader):
    """Reader of the terminal that returns a pasted text when it is whole.

    prompt_toolkit searches everything that was pasted so far for the end of the paste with each piece that comes, which takes time by
    the square of the length: seconds for three megabytes. Here a piece is searched once. What is typed is returned at once.

    To be made when the terminal is in raw mode: what it holds then was typed before, and its Enter has become a line feed.
    """

    def __init__(self, stdin_fd: int, encoding: str) -> None:
        super().__init__(stdin_fd, encoding=encoding)
        self._held: list[str] = []
        """Pieces of the paste that has begun and not ended."""
        self._is_pasting = False
        """A paste has begun and not ended."""
        self._last = ""
        """The last characters that were read, in which a mark may have begun."""

        self._early = _waiting_bytes(stdin_fd)
        """Bytes that were typed before the prompt, while the terminal still made a line feed of Enter."""

    def _read_keys(self, count: int) -> str:
        """Return what has come; Enter of before the prompt is Enter, so that what was typed during the start is sent."""
        data = super().read(count)
        if self._early and data:
            typed = data.encode("utf-8", "surrogateescape")
            early, self._early = typed[: self._early], max(0, self._early - len(typed))
            text = early.decode("utf-8", "surrogateescape")
            data = text.replace("\n", "\r") + data[len(text) :]
        return data

    def read(self, count: int = _PIECE) -> str:
        """Return what has come; "" if that is a part of a paste. Text of a paste that ends with the terminal is returned, too."""
        data = self._read_keys(count)
        seen = self._last + data
        self._last = seen[-len(_PASTE_BEGINS) + 1 :]
        was_pasting = self._is_pasting
        # The last mark decides: a piece may hold the end of one paste and the beginning of the next.
        begin, end = seen.rfind(_PASTE_BEGINS), seen.rfind(_PASTE_ENDS)
        if begin != end:  # one of the marks is there
            self._is_pasting = begin > end
        if not was_pasting:
            return data
        self._held.append(data)
        if end < 0 and not self.closed:
            return ""
        whole = "".join(self._held)
        self._held.clear()
        return whole


class FoldedPastes(Processor):
    """Processor of prompt_toolkit that shows a few words for each long pasted text."""

    def __init__(self, pasted: PastedTexts) -> None:
        self._pasted = pasted

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return a line as it is shown, with the places of its characters before and after."""
        shown: StyleAndTextTuples = []
        starts = [0]
        for fragment in explode_text_fragments(transformation_input.fragments):
            text = self._pasted.show(fragment[1])
            shown.append((fragment[0], text))
            starts.append(starts[-1] + len(text))
        return Transformation(
            shown,
            source_to_display=lambda place: starts[min(place, len(starts) - 1)],
            display_to_source=lambda place: max(0, bisect_right(starts, place) - 1),
        )


# ------------------------------------------------------------------ history


class ChatHistory(History):
    """History of typed messages for prompt_toolkit, kept in a `HistoryFile`."""

    def __init__(self, file: HistoryFile) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Return the entries, newest first."""
        return reversed(self._file.load())

    def store_string(self, string: str) -> None:
        """Append an entry; one that is longer than LONGEST_ENTRY is remembered for this chat only."""
        if len(string) <= LONGEST_ENTRY:
            self._file.append(string)


# ------------------------------------------------------------------ completion


class ChatCompleter(Completer):
    """Completion of commands, skills, models, tasks and file names, as `choices` offers them.

    known: returns what the agent has said that there is.
    """

    def __init__(self, known: Callable[[], Suggestions]) -> None:
        self._known = known

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield a completion for each choice. Called in a thread, since a folder on a slow disk may be read."""
        for choice in choices(document.text_before_cursor, document.text_after_cursor, self._known()):
            yield Completion(choice.text, -choice.replaces, display_meta=" ".join(neutralise(choice.meaning).split()))


@Condition
def offers_choices() -> bool:
    """Return True if there may be choices for the typed text, so that they are shown unasked."""
    return may_have_choices(get_app().current_buffer.document.text_before_cursor)


def complete_with_tab(buffer: Buffer) -> None:
    """Carry out the Tab key: add what all choices have in common; where they differ at once, highlight the first or the next.

    The first choice is only highlighted, and on the line, when the menu with all of them is open, so that nobody chooses one of
    several without having seen the others.
    """
    state = buffer.complete_state
    if state is None or not state.completions:
        buffer.start_completion(insert_common_part=True)
        return
    common = get_common_complete_suffix(buffer.document, state.completions) if state.complete_index is None else ""
    if common:
        buffer.insert_text(common)
        if len(state.completions) > 1:
            buffer.start_completion()
    else:
        buffer.complete_next()


# ------------------------------------------------------------------ keys

KeyEffects: TypeAlias = Mapping[KeyAction, Callable[[], None]]
"""Method of the screen for each action."""


def key_bindings(
    buffer: Buffer,
    pasted: PastedTexts,
    effects: KeyEffects,
    thinking: Callable[[], bool],
    again: Callable[[], bool],
    question: Callable[[], LeaveQuestion | None],
) -> KeyBindings:
    """Return the chat's own keys, beside prompt_toolkit's Emacs keys; they apply while `buffer` has the focus.

    During a search (Ctrl-R) the search field has it, so that Enter, Esc and Ctrl-C end the search. Esc closes the menu if it is open,
    and else ends an answer; typed text stays. thinking, again: asked at each Ctrl-C. question: while there is one, no other key has an
    effect.
    """
    keys = KeyBindings()
    asked = Condition(lambda: question() is not None)
    focused = has_focus(buffer) & ~asked
    empty = Condition(lambda: not buffer.text)
    keys.add("enter", filter=focused)(lambda _: effects[on_enter(buffer.text, buffer.cursor_position)]())
    # Alt-Enter arrives as these two keys.
    keys.add("escape", "enter", filter=focused)(lambda _: buffer.insert_text("\n"))
    keys.add("c-j", filter=focused)(lambda _: buffer.insert_text("\n"))
    keys.add("c-c", filter=focused)(lambda _: effects[on_interrupt(buffer.text, thinking=thinking(), again=again())]())
    keys.add("escape", filter=focused & has_completions)(lambda _: buffer.cancel_completion())
    keys.add("escape", filter=focused & ~has_completions & Condition(thinking))(
        lambda _: effects[KeyAction.END_ANSWER]()
    )

    def paste(event: KeyPressEvent) -> None:
        """Insert a pasted text. Line ends of terminals are CR."""
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        is_word = not buffer.document.char_before_cursor.strip()
        buffer.insert_text(pasted.fold(mention_dropped(text) if is_word else text))

    def edit(event: KeyPressEvent) -> None:
        """Open the whole text in an editor."""
        buffer.text = pasted.unfold(buffer.text)
        buffer.open_in_editor()

    keys.add(Keys.BracketedPaste, filter=focused)(paste)
    keys.add("c-x", "c-e", filter=focused)(edit)
    keys.add("c-d", filter=focused & empty)(lambda _: effects[KeyAction.LEAVE]())
    keys.add("c-i", filter=focused)(lambda _: complete_with_tab(buffer))
    keys.add("c-z", filter=focused)(lambda _: effects[KeyAction.SUSPEND]())
    return keys


def question_keys(question: Callable[[], LeaveQuestion | None], answer: Callable[[str], None]) -> KeyBindings:
    """Return the keys that answer a question. answer: called with the key; a key without meaning is ignored."""
    keys = KeyBindings()
    asked = Condition(lambda: question() is not None)
    for key in ("escape", "c-c", "c-d"):
        # Eager: Escape is also the beginning of other keys, and would be waited for.
        keys.add(key, filter=asked, eager=True)(lambda event: answer(event.key_sequence[0].key))
    keys.add("<any>", filter=asked, eager=True)(lambda event: answer(event.data))
    return keys


# ------------------------------------------------------------------ layout

# Menus have the terminal's own colours: prompt_toolkit's grey and black ones are illegible on many colour schemes.
STYLE: Final = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "status": "dim",
        "completion-menu": "fg:default bg:default",
        "completion-menu.completion": "fg:default bg:default",
        "completion-menu.completion.current": "fg:default bg:default reverse",
        "completion-menu.meta.completion": "fg:default bg:default dim",
        "completion-menu.meta.completion.current": "fg:default bg:default",
        "search-toolbar": "dim",
        "search-toolbar.text": "nodim",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default",
    }
)

_ROWS_BELOW: Final = 3
"""Rows kept free below a text of many lines, for the status and a glimpse of the conversation above."""


class _MenuControl(CompletionsMenuControl):
    """Completion menu that shortens with `…`, as all else does, where prompt_toolkit's writes three dots."""

    def create_content(self, width: int, height: int) -> UIContent:
        """Return the lines of the menu."""
        menu = super().create_content(width, height)
        if not is_utf8(get_app().output.encoding()):
            return menu

        # The parts of a line are styles and texts; the dots are a part of their own.
        def shortened(number: int) -> StyleAndTextTuples:
            """Return the parts of one line of the menu."""
            return [(part[0], "…  " if part[1] == "..." else part[1]) for part in menu.get_line(number)]

        return UIContent(shortened, menu.line_count, menu.cursor_position, menu.menu_position, menu.show_cursor)


def chat_layout(
    buffer: Buffer,
    pasted: PastedTexts,
    prompt: str,
    status: Callable[[], StyleAndTextTuples],
    live: ConditionalContainer,
    question: Callable[[], LeaveQuestion | None],
) -> Layout:
    """Return the layout: the live region, the typed text, a search, question or completion below it, the status line.

    The cursor is in `buffer`. The status line takes no room while its text is empty. Lines of the text that wrap, or
    follow a line break, are indented by the width of `prompt`.
    """
    search = SearchToolbar(backward_search_prompt="search: ", forward_search_prompt="search forward: ")
    margin: StyleAndTextTuples = [("", " " * len(prompt))]

    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        """Return what stands before a line: the prompt in the first, blanks of its width in all others."""
        return [("class:prompt", prompt)] if (line, wrapped) == (0, 0) else margin

    text = Window(
        BufferControl(
            buffer,
            search_buffer_control=search.control,
            input_processors=[HighlightIncrementalSearchProcessor(), FoldedPastes(pasted)],
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
    asked = ConditionalContainer(
        Window(
            FormattedTextControl(
                lambda: "\n".join(q.lines(get_app().output.get_size().columns)) if (q := question()) else ""
            ),
            wrap_lines=True,
            dont_extend_height=True,
        ),
        filter=Condition(lambda: question() is not None),
    )
    menu = ConditionalContainer(
        Window(
            _MenuControl(),
            width=Dimension(min=8),
            height=Dimension(min=1, max=8),
            right_margins=[ScrollbarMargin()],
            dont_extend_width=True,
            style="class:completion-menu",
            # Above everything else, as in prompt_toolkit's own menu.
            z_index=10**8,
        ),
        filter=has_completions & ~is_done,
    )
    return Layout(HSplit([live, text, search, asked, menu, line, Window()]), focused_element=text)
