"""The control plane's methods about conversations as people see them: their list, what was said in each, and going back in one.

    history.list    all conversations and archives, with titles and a search
    history.show    what was said in one, on any channel
    history.retry   answer the last message again
    history.edit    go back to a message, and say something else instead
    history.rename  give a conversation a name

A conversation has what an owner has said in private, so only owners get in here, and no client that belongs to one conversation.
"""

from __future__ import annotations

from functools import partial
from secrets import token_hex
from typing import Final

import attrs

from actors import Ref
from pegasus.access import Principal, Role
from pegasus.app.approvals import ANSWER_TIMEOUT
from pegasus.app.control_plane.access import address_of, place_before
from pegasus.formatting import quote
from pegasus.gateway import (
    BadParams,
    Caller,
    Conflict,
    Method,
    NotFound,
    Params,
    bad_params_for,
    read_number,
    require_all_conversations,
    require_text,
)
from pegasus.intake import Priority, command_of
from pegasus.main_agent import (
    CURRENT,
    MOST_ROWS,
    OWN_TURN,
    PAGE_ROWS,
    ConversationNames,
    NameRefused,
    Place,
    SessionPlace,
    conversation_json,
    conversation_name_key,
    find_message,
    find_session,
    has_session,
    history_json,
    list_conversations,
    read_conversation,
    session_files_of,
)
from pegasus.messages import GOES_BACK, ChannelInfo, InboundMessage, Json
from pegasus.settings import LiveValue, Settings
from pegasus.storage import Accept, JournalMessage, KnownAddresses, Overloaded, StoredFiles, read_beside

PAGE: Final = 50
"""Messages of a page if the caller names no number."""


@attrs.frozen(eq=False, repr=False)
class HistoryMethods:
    """Conversations by their keys.

    Example::

        methods = HistoryMethods(journal, FolderFiles(home.data), reloader.in_force, environment.conversation_names)
        [newest, *_] = (await methods.list(caller, {"find": "lisbon"}))["conversations"]
        await methods.show(caller, {"key": newest["key"]})
    """

    journal: Ref[JournalMessage]
    """Takes the message that is said instead."""
    data: StoredFiles
    """Sessions and archives."""
    settings: LiveValue[Settings]
    """All settings."""
    names: ConversationNames
    """Names of conversations."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {
            "history.list": self.list,
            "history.show": self.show,
            "history.retry": self.retry,
            "history.edit": self.edit,
            "history.rename": self.rename,
        }

    async def list(self, caller: Caller, params: Params) -> Json:
        """Return conversations, those that changed last first, from `offset` (0) on, at most `limit` of them.

        `find`: only those that contain this. `next`: offset of the rest, null at the end.
        """
        require_all_conversations(caller)
        find = require_text(params, "find") if params.get("find") else ""
        limit = min(read_number(params, "limit", PAGE_ROWS) or PAGE_ROWS, MOST_ROWS)
        offset, given = read_number(params, "offset", 0), self.names.all
        page = await read_beside(self.journal, list_conversations, self.data, given, find, offset, limit)
        return {"conversations": [conversation_json(row) for row in page.rows], "next": page.next}

    async def show(self, caller: Caller, params: Params) -> Json:
        """Return `limit` messages of the conversation `key`, oldest first, those before `before` of an earlier answer.

        Without `key` it is the conversation of the caller. Older pages go on into the archives that it continues.
        """
        require_all_conversations(caller)
        place = self._place(caller, params)
        before = place_before(params)
        if (
            before is None
            and place.name != CURRENT
            and not await read_beside(self.journal, has_session, self.data, place)
        ):
            raise NotFound(f"key: there is no conversation {quote(place.file)}")
        limit = read_number(params, "limit", PAGE) or PAGE
        page = await read_beside(
            self.journal, read_conversation, self.data, place.files, before or Place(place.name, -1), limit
        )
        return history_json(page, with_channels=True)

    async def retry(self, caller: Caller, params: Params) -> Json:
        """Answer the last message of an owner in the conversation `key` again. It returns when that is on disk: `id` names it."""
        return await self._go_back(caller, params, None, None)

    async def edit(self, caller: Caller, params: Params) -> Json:
        """Go back to the message `id` of the conversation `key`, and say `text` instead. What was said since is archived."""
        text = require_text(params, "text", "the text that is said instead")
        # A command acts on the conversation or beside it; it is no message that could stand in it.
        if not text.strip() or command_of(text):
            raise BadParams("text: allowed: a message; send a command as a message of its own")
        return await self._go_back(caller, params, require_text(params, "id", "the id of a message"), text)

    async def rename(self, caller: Caller, params: Params) -> Json:
        """Give the conversation `key` the name `name`, "" for its title of before. Return the name as it is kept.

        Files of one conversation have one name: what a compaction or an edit has archived is renamed as well.
        """
        require_all_conversations(caller)
        place, name = self._place(caller, params), params.get("name")
        if not isinstance(name, str):
            raise BadParams(f"name: found {quote(name, 40)}, allowed: a text")
        key = await read_beside(self.journal, conversation_name_key, self.data, place)
        if key is None:
            raise NotFound(f"key: there is no conversation {quote(place.file)}")
        with bad_params_for(NameRefused):
            return {"name": await self.names.give(key, name)}

    async def _go_back(self, caller: Caller, params: Params, id: str | None, text: str | None) -> Json:
        """Put a message into the queue that replaces the message `id`, None for the last one. text: None: the same again.

        The Main Agent goes back when the message's turn has come, so nothing is cut off under a thought that runs.
        """
        require_all_conversations(caller)
        place = self._place(caller, params)
        if place.name != CURRENT:
            raise Conflict(f"key: {quote(place.file)} is an archive; go on with it first (/resume)")
        found = await read_beside(self.journal, find_message, self.data, place.files, id)
        if found is None:
            what = "no message of an owner" if id is None else f"no message {quote(id, 80)} of an owner"
            raise NotFound(f"{'key' if id is None else 'id'}: there is {what} in this conversation to go back to")
        known = await self.journal.ask(KnownAddresses, timeout=ANSWER_TIMEOUT)
        # The session has names in the form that a model sees.
        address = next((each for each in known if each.escaped == found.address), found.address)
        channel = ChannelInfo(address.type, address.channel_id, found.user_id, found.thread)
        metadata: dict[str, Json] = {
            **Principal(Role.OWNER, channel).recorded,
            GOES_BACK: {"id": found.id, "again": text is None},
            OWN_TURN: True,
        }
        message = InboundMessage(found.text if text is None else text, channel, f"again-{token_hex(8)}", metadata)
        accept = partial(Accept, message=message, lane="main", priority=Priority.OWNER, owner=True)
        answer = await self.journal.ask(accept, timeout=ANSWER_TIMEOUT)
        if isinstance(answer, Overloaded):
            raise Conflict(f"not accepted: {answer.reason}")
        return {"id": message.id, "replaces": found.id}

    def _place(self, caller: Caller, params: Params) -> SessionPlace:
        """Return the conversation `key`; left out: that of the caller. Raises NotFound."""
        if "key" not in params:
            chat = address_of(caller, params)
            return SessionPlace(session_files_of(self.settings.now.agent.scope, chat), CURRENT)
        key = require_text(params, "key", "the key of a conversation, as the list names it")
        place = find_session(key) or find_session(f"{key}.jsonl")
        if place is None:
            raise NotFound(f"key: there is no conversation {quote(key, 80)}")
        return place
