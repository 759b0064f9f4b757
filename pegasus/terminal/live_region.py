"""The live region above the prompt: a reply while it is being written, with its Markdown laid out.

A draft arrives as a whole with each new piece of it, often many times a second. Three bounds keep the work small however long
the reply becomes: only its end is laid out (`ReplyLayout.draft`), it is laid out at most every DRAFT_SECONDS, and at most a
quarter of the time is spent on it. The newest draft always wins; what came between two pictures is never drawn.

The region is a part of the prompt_toolkit layout, so that its redraw writes only what has changed and does not flicker. It shows
the newest lines and takes no more room than the window has. When the draft ends, the region is empty; the final text is printed
above the prompt like any other reply.

Everything here runs in the screen's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.layout import ConditionalContainer, Dimension, FormattedTextControl, Window

from pegasus.terminal.markdown import ReplyLayout
from pegasus.terminal.status_line import Draft

DRAFT_SECONDS: Final = 0.1
"""Seconds between two pictures of a draft: fast enough to read along, slow enough for a connection by ssh."""
_REST: Final = 3
"""Times that a layout took are waited after it, so that drafts use a quarter of the time at most."""
_ROWS_KEPT: Final = 4
"""Rows of the window that a draft leaves for the prompt, the status line, and a glimpse of the conversation."""


class LiveRegion:
    """The draft above the prompt.

    layout: lays out the text. size: returns the window's present size. redraw: asks for the prompt to be drawn again.
    """

    def __init__(self, layout: ReplyLayout, size: Callable[[], Size], redraw: Callable[[], None]) -> None:
        self._layout = layout
        self._size = size
        self._redraw = redraw
        self._draft: Draft | None = None
        """The newest draft; None while there is none."""
        self._lines: list[str] = []
        """Lines of it that are shown, laid out for the window."""
        self._fragments: StyleAndTextTuples = []
        """The same lines as prompt_toolkit wants them."""
        self._timer: asyncio.TimerHandle | None = None
        """Call of `_lay_out` that is due when the present picture has been shown long enough."""
        self._not_before = 0.0
        """Time on the loop's clock before which nothing is laid out."""

    def show(self, draft: Draft | None) -> None:
        """Show another state of the draft as soon as it is time for it; None empties the region at once."""
        self._draft = draft
        if draft is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if self._lines:
                self._lines, self._fragments = [], []
                self._redraw()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            if (wait := self._not_before - loop.time()) > 0:
                self._timer = loop.call_later(wait, self._lay_out)
            else:
                self._lay_out()

    def resized(self) -> None:
        """Lay the draft out again for another window size."""
        if self._draft is not None and self._timer is None:
            self._lay_out()

    def container(self) -> ConditionalContainer:
        """Return the region for the layout. It takes no room while there is no draft.

        The cursor's position makes prompt_toolkit show the last lines where there is less room than wanted, because a long
        text is being typed below.
        """
        control = FormattedTextControl(
            lambda: self._fragments, get_cursor_position=lambda: Point(0, len(self._lines) - 1), show_cursor=False
        )
        window = Window(
            control,
            height=lambda: Dimension(min=1, preferred=len(self._lines), max=len(self._lines)),
            always_hide_cursor=True,
        )
        return ConditionalContainer(window, filter=Condition(lambda: bool(self._lines)))

    def _lay_out(self) -> None:
        """Lay out the newest draft and have it drawn."""
        self._timer = None
        if self._draft is None:
            return
        loop = asyncio.get_running_loop()
        begin, size = loop.time(), self._size()
        draft = self._draft
        self._lines = self._layout.draft(
            draft.agent, draft.text, draft.reasoning, size.columns, max(3, size.rows - _ROWS_KEPT)
        )
        self._fragments = to_formatted_text(ANSI("\n".join(self._lines)))
        self._not_before = loop.time() + max(DRAFT_SECONDS, _REST * (loop.time() - begin))
        self._redraw()
