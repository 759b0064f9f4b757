"""The commands that change a conversation: /new, /compact, /resume, /retry and /rename.

They wait in the main lane, whose turn alone may write to the session. Each but /rename changes it in one durable step
(`Session.restart`), which keeps the session before as an archive. The entry that the step writes names the command's item, so that a
crash behind the step is recognised: carried out again, the command then only answers. A /stop before the step leaves the conversation
as it was. A name is kept beside the session (`ConversationNames`), and may be given twice.

Where all channels share one session, only an owner may do this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from actors import Ref
from pegasus.access import Principal
from pegasus.conversation import Entry, parse_metadata_line, sanitize_for_prompt
from pegasus.formatting import quote
from pegasus.intake import COMMAND_WITHIN, command_of
from pegasus.main_agent.chat_commands import CHANGES_ARE_THE_OWNERS
from pegasus.main_agent.item_endings import begin_session
from pegasus.main_agent.replies import COMMAND, reply_to_sender
from pegasus.main_agent.services import AgentServices
from pegasus.main_agent.session import (
    CONVERSATION,
    REPLACED,
    ApartArchives,
    ItemProgress,
    NameRefused,
    Session,
    SessionArchives,
    conversation_id,
    is_archive,
    is_begun_by,
    name_key,
    read_archive,
    retry,
)
from pegasus.messages import Json, Said
from pegasus.storage import Item, JournalMessage, StorageError

LISTED: Final = 10
"""Archives that /resume lists."""
LOOKED_AT: Final = 1_000
"""Archives among which /resume looks for a name."""


@attrs.frozen(eq=False, repr=False)
class ConversationChanges:
    """The commands of the main lane, for one session.

    Example::

        changes = ConversationChanges(session, services, journal, is_shared=True)
        await changes.obey(item, principal, session.progress(item.n))  # True: the item is done
    """

    _session: Session
    """The conversation."""
    _services: AgentServices
    """Compactor, archives and clock."""
    _journal: Ref[JournalMessage]
    """Reads archives."""
    _show: Callable[[Said], None]
    """Shows the other clients of the conversation what was said."""
    _is_shared: bool = attrs.field(kw_only=True)
    """All channels share the session."""

    async def obey(self, item: Item, person: Principal, progress: ItemProgress) -> bool:
        """Carry out the command in an item. Return False if the item is to be thought about: a /retry, or one that was stopped."""
        if progress.is_recorded:  # stopped before it was carried out, or a /retry that was
            return False
        command = command_of(item.message.text) or ""
        if self._is_shared and not person.is_owner:
            what = CHANGES_ARE_THE_OWNERS[command]
            await self._say(
                item, f"Only my owner can {what}: this one is shared by all channels. Just go on writing here."
            )
            return True
        match command:
            case "/compact":
                await self._say(item, await self._compact(item))
            case "/resume":
                await self._say(item, await self._resume(item))
            case "/rename":
                await self._say(item, await self._rename(item, person))
            case "/retry":
                refusal = await self._retry(item)
                if not refusal:
                    return False
                await self._say(item, refusal)
            case _:
                await begin_session(item, self._session, self._services.clock())
                self._show(self._said(item, item.message.text, begins=True))
        return True

    def _said(self, item: Item, text: str, *, begins: bool = False, replaces: str = "") -> Said:
        """Return what was said by a command, for the other clients."""
        message, chat = item.message, self._session.files.chat
        now = self._services.clock()
        return Said("user", text, message.channel, now, message.id, begins=begins, replaces=replaces, chat=chat)

    async def _say(self, item: Item, text: str) -> None:
        """Answer the command."""
        await self._session.commit((), (reply_to_sender(item, text, COMMAND),))

    def _is_done(self, item: Item) -> bool:
        """Return whether the session that there is now was made by this command."""
        return is_begun_by(self._session.entries, item.n, item.message.id)

    # ------------------------------------------------------------------ /compact

    async def _compact(self, item: Item) -> str:
        """Put a summary in the place of the conversation, and return the answer."""
        compactor, session = self._services.compactor(), self._session
        if self._is_done(item):
            kept = session.entries[0].metadata.get("previousSession")
            return f"Compacted. All of it is kept in {session.files.file(str(kept))}."
        if compactor is None:
            return "Nothing compacts conversations here; /new begins a fresh one."
        done = await compactor.compact_asked(session, item.n, _argument(item), _marks(item))
        if done.is_empty:
            return "There is nothing to compact yet."
        if not done.archive:
            return (
                "The model gave no summary that I can go on with, so the conversation is as it was. "
                "My log says why; /new begins a fresh one."
            )
        return (
            f"Compacted: about {done.before:,} tokens became {done.after:,}. "
            f"All of it is kept in {session.files.file(done.archive)}; /resume goes back to it."
        )

    # ------------------------------------------------------------------ /resume

    async def _resume(self, item: Item) -> str:
        """List the archives of the conversation, or go on with one. Return the answer."""
        session, wanted = self._session, _argument(item).strip()
        if self._is_done(item):
            return "You are back in that conversation."
        archives = self._archives()
        if archives is None:
            return "There are no earlier conversations here."
        try:
            names = (await archives.names())[::-1]
            if not wanted:
                return await _list_archives(archives, names)
            name = await _find_archive(archives, names, wanted)
            if not is_archive(name):
                return name
            entries = await read_archive(self._journal, session.files, name)
        except (OSError, StorageError) as error:
            return f"/resume did not work: {error}"
        if not entries:
            return f"{session.files.file(name)} holds no message that can be read."
        same: dict[str, Json] = {CONVERSATION: conversation_id(entries[0])}  # it is that conversation again
        first = attrs.evolve(entries[0], metadata={**entries[0].metadata, **_marks(item), **same})
        # Of all archives since, nothing stands before the conversation in its history.
        known = entries[0].metadata.get(REPLACED)
        since: list[Json] = [*(known if isinstance(known, list) else []), *names[: names.index(name) + 1]]

        def begin(archive: str) -> Sequence[Entry]:
            """Return the entries of the archive, the first of which names those that it does not go on from."""
            return (attrs.evolve(first, metadata={**first.metadata, REPLACED: [*since, archive]}), *entries[1:])

        if session.entries:
            kept = await session.restart(begin, self._services.clock())
            before = f" The one before is kept in {session.files.file(kept)}."
        else:
            await session.commit((first, *entries[1:]))
            before = ""
        title, given = await archives.title(name), self._services.names.all.get(name_key(session.files, first))
        about = f" “{given}” of {_when(name)}" if given else f" of {_when(name)}"
        about += f", which begins with “{title}”" if title and not given else ""
        return f"You are back in the conversation{about}.{before}"

    def _archives(self) -> SessionArchives | None:
        """Return the archives that may be gone on with: of the same session, and of the same kind."""
        if self._services.archives is None:
            return None
        archives = self._services.archives(self._session.files)
        return ApartArchives(archives) if self._session.is_apart else archives

    # ------------------------------------------------------------------ /rename

    async def _rename(self, item: Item, person: Principal) -> str:
        """Name the conversation, or say what it is called. Return the answer."""
        if not person.is_owner:
            return "Only my owner names conversations."
        names, entries, wanted = self._services.names, self._session.entries, _argument(item)
        if not entries:
            return "There is nothing to name yet: nothing was said in this conversation."
        key = name_key(self._session.files, entries[0])
        if not wanted.strip():
            name = names.all.get(key)
            return f"This conversation is called “{name}”." if name else "/rename NAME gives this conversation a name."
        try:
            return f"This conversation is called “{await names.give(key, wanted)}” now; /resume finds it by that."
        except NameRefused as error:
            return str(error)
        except StorageError as error:
            return f"/rename did not work: {error}"

    # ------------------------------------------------------------------ /retry

    async def _retry(self, item: Item) -> str:
        """Go back to right behind the last message of this person here. Return the reason if that is not possible, else "".

        The message is recorded again as that of this item, which is then thought about like any other.
        """
        session, message = self._session, item.message
        index = next((n for n in range(len(session.entries) - 1, -1, -1) if session.entries[n].item is not None), None)
        if index is None:
            return "There is no message that I could answer once more."
        last, now = session.entries[index], self._services.clock()
        if (
            last.metadata.get("type") is not None
            or parse_metadata_line(last.content) != message.channel.address.escaped
            or last.metadata.get("userId") != message.channel.user_id
        ):
            return "Since your last message here something else has come into this conversation. Please send it again."
        replaced = await retry(session, item, now, str(last.metadata.get("messageId")))
        if replaced is None:
            return "I cannot go back to that message. Please send it again."
        self._show(self._said(item, last.content.partition("\n")[2], replaces=replaced))
        return ""


def _argument(item: Item) -> str:
    """Return the words behind the command."""
    _, *words = sanitize_for_prompt(item.message.text[:COMMAND_WITHIN]).split(None, 1)
    return "".join(words)


def _marks(item: Item) -> dict[str, Json]:
    """Return the metadata of a session's first entry that names the command which has made the session."""
    return {"closes": item.n, "messageId": item.message.id}


def _when(name: str) -> str:
    """Return when an archive was put aside, as its name says it: "2026-02-25 14:30"."""
    return f"{name[:10]} {name[11:13]}:{name[13:15]}"


async def _list_archives(archives: SessionArchives, names: Sequence[str]) -> str:
    """Return the newest archives with their numbers. Raises OSError."""
    if not names:
        return "There are no earlier conversations here."
    lines = []
    for number, name in enumerate(names[:LISTED], 1):
        title = await archives.title(name)
        lines.append(f"{number}. {_when(name)} {title or '(without a message)'}")
    if len(names) > LISTED:
        lines.append(f"({len(names) - LISTED} older ones: pegasus sessions)")
    lines.append("\n/resume N goes on with one of them; this conversation is kept.")
    return "\n".join(lines)


async def _find_archive(archives: SessionArchives, names: Sequence[str], wanted: str) -> str:
    """Return the name of the archive that a person means: by number, by its file, by its name, or by words of that.

    One without a name is found by words of its first message. Of several the newest counts.

    Anything else that is returned is the answer to them. Raises OSError.
    """
    if wanted.isdecimal() and wanted.isascii():
        number = int(wanted[:9])
        if 1 <= number <= len(names):
            return names[number - 1]
        return f"There is no conversation {wanted[:9]}; /resume lists those that there are."
    named = [name for name in names if name == wanted or name.removesuffix(".jsonl") == wanted.removesuffix(".jsonl")]
    if not named:
        words = " ".join(wanted.split()).casefold()
        titles = [(name, (await archives.title(name)).casefold()) for name in names[:LOOKED_AT]]
        # A whole name goes before one that only contains the words.
        named = [name for name, title in titles if title == words] or [name for name, title in titles if words in title]
    if not named:
        return f"No earlier conversation here is called {quote(wanted, 60)}; /resume lists those that there are."
    return named[0]
