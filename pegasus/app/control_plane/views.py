"""The control plane's methods that show what a person may look at beside the work itself: the web page is made of them.

    history         what was said in a conversation
    markdown        texts as HTML that is safe to insert
    skills.list     the skills, with the text of each
    sessions.list   the sessions of all chats and their archives; sessions.show: lines of one
    conversations.list  the conversations that are known
    log.tail        the last lines of the log
    completions     commands, skills and models, for the menus of a chat

They read files in threads, so a large session or log delays nobody, and what they return is bounded: a result must fit into a frame.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.app.approvals import ANSWER_TIMEOUT
from pegasus.app.control_plane.access import address_of, place_before
from pegasus.conversation import BadEntry, decode, to_json
from pegasus.formatting import quote
from pegasus.gateway import (
    BadParams,
    Caller,
    Method,
    NotFound,
    Params,
    read_number,
    require_all_conversations,
    require_text,
)
from pegasus.json_lines import LONGEST_LINE
from pegasus.main_agent import (
    PAGE_ROWS,
    SessionPlace,
    SkillInvoker,
    chat_of,
    describe_commands,
    find_session,
    history_json,
    list_sessions,
    open_archive,
    read_history,
    session_json,
)
from pegasus.messages import Address, Json
from pegasus.models import LanguageModel
from pegasus.settings import LiveValue, Settings
from pegasus.skills import SkillCatalog, skill_view
from pegasus.storage import JournalMessage, KnownAddresses, StoredFiles, read_beside
from pegasus.web import render_markdown
from pegasus.wire import decode_json

MAX_TEXTS: Final = 50
"""Texts that one call of `markdown` takes."""
MAX_MARKDOWN: Final = 300_000
"""Characters of all of them together."""
MAX_LINES: Final = 200
"""Lines of a session that one call returns."""
MAX_TEXT: Final = 8_000
"""Characters of one text in a line of a session that are shown."""
TAIL: Final = 64 * 1024
"""Bytes of the log that one call returns at most, the newest ones."""


@attrs.frozen(eq=False, repr=False)
class ViewMethods:
    """Methods that only show something.

    Example::

        views = ViewMethods(journal, FolderFiles(home.data), home.log, catalog, home.skills, reloader.in_force)
        answer = await views.history(caller, {"limit": 50})
        await views.history(caller, {"limit": 50, "before": answer["before"]})  # the page before
    """

    journal: Ref[JournalMessage]
    """Knows the conversations."""
    data: StoredFiles
    """Sessions and archives."""
    log_file: Path
    """The log."""
    skills: SkillCatalog
    """Skills that people and the model can call."""
    home_skills: Path
    """`<home>/skills`."""
    settings: LiveValue[Settings]
    """All settings."""
    _rendering: trio.CapacityLimiter = attrs.field(factory=partial(trio.CapacityLimiter, 1), init=False)
    """One text is rendered at a time: rendering needs the processor, and the rest of the process comes first."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "history": self.history,
            "markdown": self.markdown,
            "skills.list": self.list_skills,
            "sessions.list": self.list_sessions,
            "sessions.show": self.show_session,
            "conversations.list": self.list_conversations,
            "log.tail": self.tail_log,
        }

    # ---------------------------------------------------------------- the conversation

    async def history(self, caller: Caller, params: Params) -> Json:
        """Return `limit` messages of a conversation, oldest first, those before `before`, which an earlier answer has named.

        `type` and `channelId` name the conversation; left out: that of the caller. Another one needs a token with the scope "control"
        that belongs to no conversation.
        """
        address = address_of(caller, params)
        if address != Address(caller.type, caller.channel_id or "") and not caller.grant.sees_all_conversations:
            raise BadParams("channelId: the token shows its own conversation only")
        limit = read_number(params, "limit", 50) or 50
        before, scope = place_before(params), self.settings.now.agent.scope
        page = await read_beside(self.journal, read_history, self.data, scope, address, before, limit)
        return history_json(page)

    async def markdown(self, caller: Caller, params: Params) -> Json:
        """Return the HTML of each of `texts` (Markdown), which a page may insert as it is."""
        texts = params.get("texts")
        if not isinstance(texts, list) or len(texts) > MAX_TEXTS or not all(isinstance(text, str) for text in texts):
            raise BadParams(f"texts: found {quote(texts, 80)}, allowed: a list of at most {MAX_TEXTS} texts")
        if sum(map(len, map(str, texts))) > MAX_MARKDOWN:
            raise BadParams(f"texts: together longer than {MAX_MARKDOWN:,} characters, which is the limit of one call")
        html: list[Json] = []
        for text in texts:
            render = partial(render_markdown, str(text))
            html.append(await trio.to_thread.run_sync(render, abandon_on_cancel=True, limiter=self._rendering))
        return {"html": html}

    # ---------------------------------------------------------------- skills

    async def list_skills(self, caller: Caller, params: Params) -> Json:
        """Return all skills with their texts, those of the workspace that wait to be accepted, and mistakes in files."""
        await self.skills.refresh()
        skills = sorted(self.skills.all(), key=lambda skill: skill.name)
        return {
            "skills": [{**skill_view(skill, self.home_skills), "text": _shortened(skill.body)} for skill in skills],
            "proposed": [
                {"name": each.name, "changed": each.was_accepted, "problem": each.problem or None}
                for each in self.skills.proposed()
            ],
            "problems": [str(problem) for problem in self.skills.problems],
        }

    # ---------------------------------------------------------------- sessions

    async def list_sessions(self, caller: Caller, params: Params) -> Json:
        """Return sessions and archives, those that changed last first, from `offset` (0) on, at most `limit` of them.

        `chat`: only those of chats whose name contains this. Each has its file, the chat that it belongs to (None: all channels), its
        bytes, and the time of the last change in ms. `total` counts all, `next` is the offset of the rest.
        """
        require_all_conversations(caller)
        find = require_text(params, "chat") if params.get("chat") else ""
        limit = read_number(params, "limit", PAGE_ROWS) or PAGE_ROWS
        offset = read_number(params, "offset", 0) or 0
        page = await read_beside(self.journal, list_sessions, self.data, find, offset, limit)
        return {"sessions": [session_json(row) for row in page.rows], "total": page.total, "next": page.next}

    async def show_session(self, caller: Caller, params: Params) -> Json:
        """Return lines of the session `file`, from the line `offset` (counted from 1) on; `next` is where the rest begins.

        A chat, as `<type>:<channelId>`, stands for its session. `chat` of the result: the chat that it belongs to.
        """
        require_all_conversations(caller)
        name, offset = require_text(params, "file"), read_number(params, "offset", 1)
        limit = min(read_number(params, "limit", MAX_LINES) or MAX_LINES, MAX_LINES)
        place = find_session(name)
        if place is None:
            raise NotFound(f"file: found {quote(name, 80)}, allowed: a name of sessions.list")
        read = partial(_session_lines, self.data, place, max(1, offset), limit)
        try:
            chat, lines, following = await read_beside(self.journal, read)
        except FileNotFoundError:
            raise NotFound(f"file: there is no session {quote(name)}") from None
        return {"file": place.file, "chat": chat or None, "lines": lines, "next": following}

    # ---------------------------------------------------------------- the installation

    async def list_conversations(self, caller: Caller, params: Params) -> Json:
        """Return the addresses that the agent may write to: those that have written, and those of the settings."""
        known = await self.journal.ask(KnownAddresses, timeout=ANSWER_TIMEOUT)
        return {"conversations": [{"type": each.type, "channelId": each.channel_id} for each in sorted(known)]}

    async def tail_log(self, caller: Caller, params: Params) -> Json:
        """Return lines of the log behind the byte `after`, at most TAIL bytes and the newest ones, and `end`, where they end.

        Left out, or beyond the end (the file has been rotated): the newest lines.
        """
        after = params.get("after")
        start = read_number(params, "after", 0) if after is not None else None
        lines, end = await trio.to_thread.run_sync(partial(_tail, self.log_file, start), abandon_on_cancel=True)
        return {"lines": lines, "end": end}


@attrs.frozen(eq=False, repr=False)
class CompletionMethod:
    """The method `completions`: what a person may type, for the menus of a chat.

    A chat asks for it in the background when it connects and now and then later. So a command or a skill that this version of the
    agent has is offered without the chat knowing it, and a skill that was just written is offered soon.

        {"commands":[{"name":"/stop","description":"…"}],"skills":[{"name":"review","description":"…"}],"models":["anthropic/…"],
         "model":"anthropic/…"}

    For example:

        method = CompletionMethod({"/usage", "/model"}, toolset.skills, service.choices, commands.model_of)
        await method.call(caller, {})
    """

    answered: Collection[str]
    """Commands that the composition root answers, beside those of the Main Agent itself."""
    skills: SkillInvoker | None
    """Knows the skills; None where there are none."""
    models: Callable[[], Sequence[str]]
    """Returns the models that can be chosen with `/model`."""
    model_of: Callable[[Address], Awaitable[LanguageModel]]
    """Returns the model of a conversation."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"completions": self.call}

    async def call(self, caller: Caller, params: Params) -> Json:
        """Return what may be typed, and the model of the caller's conversation. The folders of skills are read again before."""
        skills = await self.skills.by_people() if self.skills is not None else ()
        return {
            "commands": [
                {"name": name, "description": text} for name, text in describe_commands(self.answered).items()
            ],
            "skills": [{"name": skill.name, "description": skill.description} for skill in skills],
            "models": list(self.models()),
            "model": (await self.model_of(Address(caller.type, caller.channel_id or ""))).name,
        }


def _shortened(text: str) -> str:
    """Return a text with at most MAX_TEXT characters, and how many are left out."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n… ({len(text) - MAX_TEXT:,} more characters)"


def _session_lines(
    data: StoredFiles, place: SessionPlace, offset: int, limit: int
) -> tuple[str, list[Json], int | None]:
    """Return the chat of a session, its lines from `offset` on, and the number of the line behind them, None at the end.

    Raises FileNotFoundError.
    """
    lines: list[Json] = []
    size = 0
    with open_archive(data, place.name, place.files) as file:
        chat = chat_of(data, place)
        for number, raw in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
            if number < offset:
                continue
            # Asked before a line is read in, so at least one line is returned and a caller always gets on.
            if len(lines) >= limit or size > MAX_MARKDOWN:
                return chat, lines, number
            line = _session_line(raw)
            lines.append({"n": number, **line})
            size += sum(len(value) for value in line.values() if isinstance(value, str))
    return chat, lines, None


def _session_line(raw: bytes) -> dict[str, Json]:
    """Return a line of a session with long texts cut; a damaged one as {"damaged": its beginning}."""
    try:
        entry = decode(decode_json(raw))
    except (ValueError, BadEntry):
        return {"damaged": raw[:400].decode(errors="replace")}
    line = to_json(attrs.evolve(entry, content=_shortened(entry.content), calls=(), metadata={}))
    if entry.calls:
        line["calls"] = [{"name": call.name, "arguments": _cut(call.arguments)} for call in entry.calls]
    kind = entry.metadata.get("type")
    line |= {"type": kind} if isinstance(kind, str) else {}
    return line | ({"failed": True} if entry.failed else {})


def _cut(arguments: Mapping[str, Json]) -> Json:
    return {key: _shortened(value) if isinstance(value, str) else value for key, value in arguments.items()}


def _tail(path: Path, after: int | None) -> tuple[list[Json], int]:
    """Return the lines behind a byte of the file, and where they end. A line that is not finished is left for the next call."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - TAIL)
            if after is not None and after <= size:
                start = max(after, start)
            file.seek(start)
            data = file.read(size - start)
    except FileNotFoundError:
        return [], 0
    # The log may be written at this moment. Where it has been rotated, `after` is beyond the end, and reading starts anew.
    whole = data[: data.rfind(b"\n") + 1]
    end = start + len(whole)
    if start not in (0, after):
        whole = whole[whole.find(b"\n") + 1 :]  # it begins within a line
    return list(whole.decode(errors="replace").splitlines()), end
