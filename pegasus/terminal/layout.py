"""What the prompt looks like: the typed text, a search or completion below it when there is one, the status line."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
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

from pegasus.terminal.keys import completions

STYLE = Style.from_dict(
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

_ROWS_BELOW = 3
"""Kept free below a text of many lines, for the status and a glimpse of the conversation above."""


class Commands(Completer):
    """Completes /commands at the start of a message."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        if not document.text_after_cursor:
            for name, meaning in completions(document.text):
                yield Completion(name, start_position=-len(document.text), display_meta=meaning)


@Condition
def is_command() -> bool:
    """Whether what is being typed may become a command, so that completions are shown unasked."""
    return get_app().current_buffer.text.startswith("/")


def chat_layout(buffer: Buffer, prompt: str, status: Callable[[], StyleAndTextTuples]) -> Layout:
    """The layout, with the cursor in `buffer`; the status line takes no room while its text is empty."""
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
