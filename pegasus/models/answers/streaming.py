"""An answer while it is streamed: from the model, through `AnswerFilter` and `PieceRelay`, to the listener of the request.

There is one of each for a call, over all attempts and fallback models. Both begin anew when what came so far is void.

The filter tells text, reasoning and calls apart (see `text_calls`), in the pieces and in the answer itself. A model that writes
`<tool_call>…` or `<think>…` as text must not have that shown as a draft of its reply. So text is held back as long as it may be the
beginning of a call, and what stands between thinking tags becomes a `ReasoningPiece`. Held text that turns out to be an ordinary text
(JSON that calls nothing, say) is passed on when that is known, at the latest with the end of the answer.

    filter = AnswerFilter(request, PieceRelay(request.on_pieces))
    response = filter.finish(await model.generate(attrs.evolve(request, on_pieces=filter)))

The pieces together are then the text of the response, as `ModelRequest.on_pieces` promises.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import attrs

from pegasus.models.answers.text_calls import (
    TEXT_CALL,
    TextCall,
    find_calls,
    remove_calls,
    without_echo,
    without_quotes,
)
from pegasus.models.answers.text_regions import CALL_OPEN, COMPLETE_BLOCK, may_become_call, named_opening
from pegasus.models.base import (
    AnotherAttempt,
    CallBegun,
    CallPiece,
    ModelError,
    ModelRequest,
    ModelResponse,
    OnPieces,
    ReasoningPiece,
    StreamPiece,
    TextPiece,
    ToolCall,
)
from pegasus.models.formats import encode_json
from pegasus.models.json_text import end_of_value, join_surrogates
from pegasus.observe import get_logger

_log = get_logger("models")

_THINK_OPEN: Final = re.compile(
    r"(?<!`)<(?:think|thinking|thought|reasoning)>|<\|channel\|>analysis\b(?:<\|message\|>)?"
)
"""Begin of reasoning. A tag behind a backquote is quoted."""
_THINK_CLOSE: Final = re.compile(
    r"(?<!`)</(?:think(?:ing)?|thought|reasoning)>|<\|end\|>|(?=<\|channel\|>(?:final|commentary))"
)
"""End of reasoning."""
_CHANNEL: Final = re.compile(
    r"<\|start\|>assistant(?! ?to=)|<\|channel\|>(?:final|commentary)<\|message\|>|<\|(?:end|return)\|>"
)
"""Marks of gpt-oss's format around text that is no reasoning (https://cookbook.openai.com/articles/openai-harmony)."""


_CHANNEL_SO_FAR: Final = re.compile(rf"(?!<\|start\|>assistant ?t?o?\Z)(?:{_CHANNEL.pattern})")
"""The same in a text whose end is still to come: the recipient of a call may follow."""


def _beginnings_of(word: str) -> str:
    """Return a pattern that matches a word and each beginning of it: "f", "fu", "fun" … of "functools".

    A piece of a stream may end anywhere, and "fun" at its end may be the beginning of `functools[…]`, which is a call.
    """
    return "(?:" + "|".join(word[:length] for length in range(len(word), 0, -1)) + ")"


_SPECIAL: Final = re.compile(rf"[<`{{\[]|\b{_beginnings_of('functools')}$")
"""Begin of everything that may be a call or reasoning."""
_TAIL: Final = re.compile(
    r"(?:<[^<>\s]{0,40}|<[^<>\s]{0,40}(?:tool|function|invoke|call)[^<>\s]{0,20}\s[^<>]{0,300}|\[[A-Z_/]{0,20}|\b"
    + _beginnings_of("functools")
    + r"|<\|(?:start|channel)\|>\w{0,12}(?: (?:t|to|to=[\w.\-]{0,80})?)?(?:<[^<>\s]{0,40}(?:>\w{0,12})?)?)$"
)
"""End of a text that may be the beginning of a tag."""
_COMMENTARY: Final = re.compile(r"(?:<\|start\|>assistant[^<]{0,100})?<\|channel\|>commentary")
"""Begin of what is usually a call in gpt-oss's format."""
_HELD: Final = re.compile(r"(?:\A|\n)[ \t]*(?=[{\[`~])")
"""Begin of a line with JSON or a code block, which may be a call."""
_SHORT: Final = 200
"""Characters of held text that are looked at with each piece."""
_LONG: Final = 100_000
"""Characters of held text from which on it is looked at only when the answer is complete: a look would stop everything else."""
_GLIMPSE: Final = 1000
"""Characters of a line and what follows it that tell whether it may be a call."""
_CLOSING_TAIL: Final = 24
"""Characters of reasoning that are held back, since they may be the beginning of a closing tag."""


def read_answer(response: ModelResponse, request: ModelRequest) -> ModelResponse:
    """Return the answer with the calls and the reasoning in its text as such; the same object if there are none.

    Calls in the text count only if the server has found none, and only those of tools that the request offers are carried out.
    """
    # Reasoning first: a call in it was only considered.
    text, reasoning = split_reasoning(response.text)
    text = without_echo(text, request)
    calls: Sequence[TextCall] = ()
    if request.tools and request.tool_choice != "none" and not response.calls and _SPECIAL.search(text):
        calls = without_quotes(text, find_calls(text, request.tools), request)
    if text == response.text and not calls:
        return response
    is_call = any(call.name for call in calls) and response.stop_reason in ("end", "length")
    reason = "tool_calls" if is_call else response.stop_reason
    # The same answer gives the same ids, and the length of the conversation keeps ids of different answers
    # apart.
    mark = f"{TEXT_CALL}{len(request.turns):x}_{zlib.crc32(response.text.encode('utf-8', 'surrogatepass')):08x}"
    return attrs.evolve(
        response,
        text=remove_calls(text, calls) if calls else text,
        calls=response.calls
        or tuple(
            ToolCall(f"{mark}_{number}", call.name, {} if call.error else call.arguments, call.error)
            for number, call in enumerate(calls)
            if call.name
        ),
        reasoning="\n\n".join(part for part in (response.reasoning, reasoning) if part),
        stop_reason=reason,
    )


def visible_text(text: str, request: ModelRequest) -> str:
    """Return what of the text of a failed answer may be shown to people: without reasoning and calls, whole or cut off."""
    text, _ = split_reasoning(text)
    if not request.tools:
        return text
    text = remove_calls(text, find_calls(text, request.tools))
    # A call that is cut off is not found as one, so everything from its tag on is left out.
    opening = CALL_OPEN.search(text)
    return text[: opening.start()] if opening else text


@attrs.define(eq=False, repr=False)
class _FilterState:
    """State of an answer that arrives. It is replaced when what came so far is void."""

    held: str = ""
    """Text that was not passed on yet."""
    sent: list[str] = attrs.field(factory=list)
    """Text that was passed on."""
    has_calls: bool = False
    """The server has found calls, so the text has none."""
    look_at: int = 0
    """Length of the held text at which it is looked at again: looking at each piece would cost the square of its length."""
    is_thinking: bool = False
    """True while reasoning comes, until its closing tag."""
    drops_blanks: bool = False
    """Reasoning has ended, and no text has come yet: blanks between the two are dropped."""
    is_call: bool = False
    """A tag has begun a call: nothing more of the text is shown before the answer is complete."""
    at_line_start: bool = True
    """True if the next piece stands at the beginning of a line."""


@attrs.define(eq=False, repr=False)
class AnswerFilter:
    """Listener of a model (`ModelRequest.on_pieces`) that passes on what is text, and holds back what may be a call."""

    _request: ModelRequest
    """Its tools decide what is a call; without tools nothing is."""
    relay: PieceRelay
    """Gets the pieces."""
    _state: _FilterState = attrs.field(factory=_FilterState, init=False)
    """State of the answer that arrives now."""
    _passed: list[StreamPiece | None] = attrs.field(factory=list, init=False)
    """Pieces for the relay, which gets all that come of one call together."""

    def __call__(self, pieces: Iterable[StreamPiece | None]) -> None:
        """Take pieces that have come together."""
        for piece in pieces:
            self._take(piece)
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the relay the pieces that were passed."""
        passed, self._passed = self._passed, []
        self.relay(passed)

    def _take(self, piece: StreamPiece | None) -> None:
        """Pass a piece on, or as much of its text as can be no hidden call."""
        # Only text can hide something. Calls and reasoning that the server has recognised pass at once.
        if not isinstance(piece, TextPiece):
            if piece is None:
                self._state = _FilterState()
            elif isinstance(piece, CallBegun | CallPiece):
                self._state.has_calls = True
            self._passed.append(piece)
            return
        text = piece.text
        # Most text passes here, without a look at anything but its own characters.
        if not self._state.held and not self._state.is_thinking and not _SPECIAL.search(text):
            self._send(text)
            return
        self._state.held += text
        if len(self._state.held) >= self._state.look_at:
            self._sort()
            held = len(self._state.held)
            self._state.look_at = 0 if held <= _SHORT else held * 5 // 4 if held <= _LONG else sys.maxsize

    def finish(self, response: ModelResponse) -> ModelResponse:
        """Return the answer as `read_answer` does, after the rest of it was passed on."""
        answer = read_answer(response, self._request)
        # Reasoning that was never closed.
        if self._state.is_thinking and self._state.held:
            self._passed.append(ReasoningPiece(self._state.held))
        sent = "".join(self._state.sent)
        if answer.text.startswith(sent):
            if rest := answer.text[len(sent) :]:
                self._passed.append(TextPiece(rest))
            if not response.calls:
                self._passed += _pieces_of_calls(answer.calls)
        else:  # what seemed to be text was none
            self._passed += (None, *pieces_of(answer))
        self._pass_on()
        self.relay.finish()
        return answer

    def fail(self, error: BaseException) -> None:
        """Take back what was passed on, and leave in a ModelError only the partial text that people may see."""
        self((None,))
        if isinstance(error, ModelError) and error.partial:
            error.partial = visible_text(error.partial, self._request)

    def _send(self, text: str) -> None:
        """Pass text on. Remembers whether the next text begins a line, where JSON may begin a call."""
        if self._state.drops_blanks:
            text = text.lstrip()
            self._state.drops_blanks = not text
        if text:
            self._state.sent.append(text)
            self._state.at_line_start = text.endswith("\n") or (self._state.at_line_start and not text.strip())
            self._passed.append(TextPiece(text))

    def _sort(self) -> None:
        """Pass on what is known of the held text."""
        while self._state.held and not self._state.is_call:
            if self._state.is_thinking:
                if not self._end_thinking():
                    return
            elif opening := _THINK_OPEN.search(self._state.held):
                # Blanks before the first reasoning belong to no text.
                before = self._state.held[: opening.start()]
                self._send(before if before.strip() or self._state.sent else "")
                self._state.held, self._state.is_thinking = self._state.held[opening.end() :], True
            else:
                self._send_text()
                return

    def _end_thinking(self) -> bool:
        """Pass on held reasoning; return whether it has ended."""
        closing = _THINK_CLOSE.search(self._state.held)
        # Without a closing tag the last characters stay, because they may be its beginning.
        stop = closing.start() if closing else max(0, len(self._state.held) - _CLOSING_TAIL)
        if stop:
            self._passed.append(ReasoningPiece(self._state.held[:stop]))
        self._state.held = self._state.held[closing.end() if closing else stop :]
        if closing is None:
            return False
        self._state.is_thinking = False
        self._state.drops_blanks = not self._state.sent
        return True

    def _send_text(self) -> None:
        """Pass on the held text up to where something may begin that is no text."""
        if "<|" in self._state.held:
            self._state.held = _CHANNEL_SO_FAR.sub("", self._state.held)
        held = self._state.held
        tools = self._request.tools and not self._state.has_calls
        stops = [len(held)]
        # A piece may end in the middle of a tag.
        if tail := _TAIL.search(held):
            stops.append(tail.start())
        names = tuple(tool.name for tool in self._request.tools)
        if tools and (
            opening := CALL_OPEN.search(held) or _COMMENTARY.search(held) or named_opening(names).search(held)
        ):
            # Tags are certain, so nothing behind this one is shown before the whole answer is read.
            self._state.is_call = True
            stops.append(opening.start())
        if tools and (line := self._line_of_call()) is not None:
            stops.append(line)
        stop = min(stops)
        self._send(held[:stop])
        self._state.held = held[stop:]

    def _line_of_call(self) -> int | None:
        """Return where a line begins that may be a call; None if there is none, or if all of them are known to be none.

        A code block in another language and JSON that is complete and calls nothing are known.
        """
        known = 0  # index behind the last block or JSON that calls nothing; its lines are not looked at one by one
        for begin in _HELD.finditer(self._state.held):
            at = begin.end()
            if at < known or (
                begin.start() == 0 and not self._state.held.startswith("\n") and not self._state.at_line_start
            ):
                continue
            if may_become_call(self._state.held[at : at + _GLIMPSE]):
                end = self._end_of_nothing(at)
                if end is None:
                    return begin.start()
                known = end
        return None

    def _end_of_nothing(self, at: int) -> int | None:
        """Return where a code block or JSON ends that begins at an index of the held text, if it is complete and calls nothing."""
        if self._state.held[at] in "`~":
            block = COMPLETE_BLOCK.match(self._state.held, at)
            end = block.end() if block else None
        else:
            end = end_of_value(self._state.held, at)
        return None if end is None or find_calls(self._state.held[at:end], self._request.tools) else end


# ------------------------------------------------------------------ reasoning


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the text without its reasoning, and the reasoning.

    A closing tag without an opening one ends reasoning that began with the answer: some chat templates put the opening tag at the end
    of the prompt.
    """
    if "<" not in text:
        return text, ""
    visible: list[str] = []
    reasoning: list[str] = []
    opening, closing = _THINK_OPEN.search(text), _THINK_CLOSE.search(text)
    at = 0
    if closing is not None and closing[0].startswith("</") and (opening is None or closing.start() < opening.start()):
        reasoning.append(text[: closing.start()])
        at = closing.end()
        opening = _THINK_OPEN.search(text, at)
    begins_with_reasoning = bool(at) or (opening is not None and not text[: opening.start()].strip())
    while opening is not None:
        visible.append(text[at : opening.start()])
        closing = _THINK_CLOSE.search(text, opening.end())
        reasoning.append(text[opening.end() : closing.start() if closing else len(text)])
        at = closing.end() if closing else len(text)
        opening = _THINK_OPEN.search(text, at)
    visible.append(text[at:])
    rest = "".join(visible)
    if "<|" in rest:
        rest = _CHANNEL.sub("", rest)
    # The blanks between reasoning and text belong to neither.
    if begins_with_reasoning:
        rest = rest.lstrip()
    return rest, "\n\n".join(part.strip() for part in reasoning if part.strip())


# ------------------------------------------------------------------ the relay to the listener

_WrittenPiece: TypeAlias = TextPiece | ReasoningPiece | CallPiece
"""Pieces that have characters."""


def pieces_of(response: ModelResponse) -> Iterator[StreamPiece]:
    """Yield an answer as whole pieces: the reasoning, the text, then each call. Empty ones are left out."""
    if response.reasoning:
        yield ReasoningPiece(response.reasoning)
    if response.text:
        yield TextPiece(response.text)
    yield from _pieces_of_calls(response.calls)


def _pieces_of_calls(calls: Sequence[ToolCall]) -> Iterator[StreamPiece]:
    """Yield the pieces of whole calls."""
    for number, call in enumerate(calls):
        yield CallBegun(number, call.name)
        if call.arguments:
            yield CallPiece(number, encode_json(call.arguments).decode())


@attrs.define(eq=False, repr=False)
class PieceRelay:
    """Relay of a streamed answer from a provider to the listener of a request. There is one for each call, whatever it takes.

    Every attempt of a call, and every model of a fallback chain, sends its pieces here, or None to retract what this attempt has sent.
    The relay makes of that what `ModelRequest.on_pieces` promises:

    * None is only forwarded if there is something to retract.
    * A character outside the basic plane that a provider cut into two surrogates is forwarded as one. Text, reasoning and each call
      are joined apart, since their pieces may alternate.
    * Empty pieces are not forwarded.
    * A listener that raises is logged and gets nothing more; the call goes on.

    It also counts characters, retracted ones too: an answer that broke off has to be paid all the same. And it keeps the longest text
    of an attempt that failed, for `ModelError.partial`.

    Example::

        relay = PieceRelay(print)
        relay([TextPiece("Hel")]); relay([None, TextPiece("Hello")]); relay.finish()
    """

    _listener: OnPieces | None = None
    """Gets the pieces; None if nobody listens, or if the listener has failed."""
    _halves: dict[type[_WrittenPiece] | int, _WrittenPiece] = attrs.field(factory=dict, init=False)
    """First surrogates of characters whose second one is still to come, by kind of piece or number of the call."""
    _has_sent: bool = attrs.field(default=False, init=False)
    """Something was forwarded that would have to be retracted."""
    _texts: list[str] = attrs.field(factory=list, init=False)
    """Text of this attempt."""
    _longest_text: str = attrs.field(default="", init=False)
    """The longest text of the attempts that failed."""
    characters: int = attrs.field(default=0, init=False)
    """Characters of text, reasoning and arguments received so far, over all attempts."""

    def __call__(self, pieces: Iterable[StreamPiece | None]) -> None:
        """Take pieces, and forward what there is of them together. None: what came before will not be part of the answer."""
        forwarded: list[StreamPiece | None] = []
        for piece in pieces:
            if piece is None:
                self._forget()
                if self._has_sent:
                    forwarded.append(None)
                self._has_sent = False
            elif (whole := piece if isinstance(piece, CallBegun | AnotherAttempt) else self._read(piece)) is not None:
                forwarded.append(whole)
                self._has_sent = True
        self._forward(forwarded)

    def _read(self, piece: _WrittenPiece) -> _WrittenPiece | None:
        """Count the characters of a piece. Return it with whole characters; None if it has none."""
        content = piece.text
        self.characters += len(content)
        if isinstance(piece, TextPiece):
            self._texts.append(content)
        whole = piece if content.isascii() and not self._halves else self._join_halves(piece)
        return whole if whole.text else None

    @property
    def longest_text(self) -> str:
        """The longest text of all attempts, the present one included."""
        return max(self._longest_text, join_surrogates("".join(self._texts)), key=len)

    def finish(self) -> None:
        """Note that the answer is complete. Half a character that is left over is forwarded as U+FFFD."""
        halves, self._halves = self._halves, {}
        self._has_sent = self._has_sent or bool(halves)
        self._forward([attrs.evolve(piece, text="\N{REPLACEMENT CHARACTER}") for piece in halves.values()])

    def _forget(self) -> None:
        """Forget the pieces of this attempt."""
        self._longest_text = self.longest_text
        self._texts.clear()
        self._halves.clear()

    def _join_halves(self, piece: _WrittenPiece) -> _WrittenPiece:
        """Return the piece with the half character before it, and without one at its end."""
        key = piece.number if isinstance(piece, CallPiece) else type(piece)
        half = self._halves.pop(key, None)
        content = (half.text if half else "") + piece.text
        if "\ud800" <= content[-1:] <= "\udbff":
            self._halves[key] = attrs.evolve(piece, text=content[-1])
            content = content[:-1]
        return attrs.evolve(piece, text=join_surrogates(content))

    def _forward(self, pieces: Sequence[StreamPiece | None]) -> None:
        if self._listener is None or not pieces:
            return
        try:
            self._listener(pieces)
        except Exception as error:
            # Once and for all: a listener that has failed would fail for each further piece.
            self._listener = None
            _log.exception("a listener of a streamed answer failed; streaming to it has ended", error=error)
