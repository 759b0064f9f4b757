"""The chats of OpenAI's clients, which send their whole history with each request: which conversation a request is about.

The agent keeps its conversations itself, and a client keeps its own. A request names its chat by an id, or it shows by the history
which one it goes on with. Of each turn a chat has digests of what was said and answered, and the id of the message, so a request is
one of these:

* the whole history and another message: the next message;
* the history up to an earlier message, and the same message: another answer;
* the history up to an earlier message, and other words: it was edited, and what came since is taken back.

Texts are compared without their white space, and answers without the reasoning that some clients keep in them. An answer that was cut
is not compared, since nobody knows how much of it the client has got. A client may leave out the beginning (its window is small), and
may have asked other models meanwhile: what is known at the end counts, and what nobody here has heard is told to the agent as text
from outside.

Ids are below the token of the client: `api:home/<id>` for the owner's, `api:token-<name>/<id>` for others. A token that is bound to
one conversation has that one.

The lines of `data/web/chats.jsonl` are turns, and answers to them. They are read at the first request. The oldest chats are forgotten;
their conversations stay, and are begun anew when they are heard of again.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.access import TokenGrant
from pegasus.intake import is_name
from pegasus.messages import GOES_BACK, Json, Metadata
from pegasus.quotes import LONGEST_QUOTE, LONGEST_QUOTES, Quote, quotes_metadata
from pegasus.storage import JournalMessage, LineStore, StorageError
from pegasus.web.routes.conversations import channel_id_of

MOST_CHATS: Final = 2_000
"""Chats that are known. The oldest one of the token with the most is forgotten first, so that no client displaces those of others."""
MOST_TURNS: Final = 200
"""Turns of a chat that are known, the newest."""
MOST_LINES: Final = 50_000
"""Lines of the file beyond which it is written anew, if that makes it shorter."""
MOST_EARLIER: Final = 40
"""Messages of a history that nobody here has heard which the agent is told."""
LONGEST_INSTRUCTIONS: Final = 32_000
"""Characters of a client's system messages."""
LONGEST_ID: Final = 120
"""Characters of a client's id of a chat; a longer one is replaced by its digest."""
SHOWN: Final = 200
"""Characters of a message and of an answer by which they are found again in a request about the chat."""
MOST_AROUND: Final = 40
"""Characters that a request about a chat has around a message and its answer, at least."""
FRONT_END: Final = "x-openwebui-chat-id"
"""Header field with the id of a chat, of a front end that always sends the whole history."""
CONVERSATION: Final = "x-conversation-id"
"""Header field with the id of a chat, of any client."""
LEAST_TELLING: Final = 60
"""Characters of an answer by which a chat is known although the message before it looks different."""
_TELLING: Final = "+"
_REASONING: Final = re.compile(r'<think>.*?</think>|<details type="reasoning".*?</details>', re.DOTALL)


def text_of(content: Json) -> str:
    """Return the text of a message's content, without what else is in it: `text_of([{"type": "text", "text": "hi"}])` is "hi"."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _first_line(text: str) -> str:
    """Return the beginning of the first line of a text, by which it is found within another one."""
    return next((line.strip() for line in _REASONING.sub(" ", text).splitlines() if line.strip()), "")[:SHOWN]


def _digest(text: str) -> str:
    """Return what stands for a text, "" for none. That of a text which tells a chat by itself ends in _TELLING."""
    plain = " ".join(_REASONING.sub(" ", text).split())
    digest = sha256(plain.encode("utf-8", "replace")).hexdigest()[:16] if plain else ""
    return f"{digest}{_TELLING}" if len(plain) >= LEAST_TELLING else digest


@attrs.frozen
class HistoryTurn:
    """A message and its answer in the history of a client."""

    said: str
    """Text of the person; "" where the history begins with an answer."""
    answered: str = ""
    """Text of the answer, "" for none."""

    @cached_property
    def question(self) -> str:
        """Digest of what was said."""
        return _digest(self.said)

    @cached_property
    def answer(self) -> str:
        """Digest of the answer."""
        return _digest(self.answered)


@attrs.frozen
class ClientRequest:
    """A request as far as it tells which chat it is about."""

    turns: tuple[HistoryTurn, ...]
    """The history before the new message."""
    new: Json
    """Content of the new message."""
    instructions: str
    """System messages of the client."""
    files: str = ""
    """Digest of the files of the new message, "" for none."""

    @property
    def said(self) -> str:
        """Text of the new message."""
        return text_of(self.new)

    def with_files(self, files: Sequence[Json]) -> ClientRequest:
        """Return the request with what stands for the files of its new message."""
        data = "".join(str(file.get("data")) for file in files if isinstance(file, Mapping))
        return attrs.evolve(self, files=_digest(data))


def parse_request(messages: Json) -> ClientRequest | None:
    """Return what the messages of a request are, None if there is none of the role user.

    What stands behind the last of those is left out: an answer that the client has begun, or results of tools of its own.
    """
    found = [each for each in messages if isinstance(each, Mapping)] if isinstance(messages, list) else []
    last = next((n for n in reversed(range(len(found))) if found[n].get("role") == "user"), None)
    if last is None:
        return None
    instructions: list[str] = []
    turns: list[HistoryTurn] = []
    for message in found[:last]:
        text, role = text_of(message.get("content")), message.get("role")
        if role in ("system", "developer"):
            instructions.append(text)
        elif role == "user":
            turns.append(HistoryTurn(text))
        elif role == "assistant" and text.strip():
            before = turns.pop() if turns else HistoryTurn("")
            turns.append(attrs.evolve(before, answered=f"{before.answered}\n{text}" if before.answered else text))
    instruction = "\n\n".join(text for text in instructions if text.strip())[:LONGEST_INSTRUCTIONS]
    return ClientRequest(tuple(turns), found[last].get("content"), instruction)


@attrs.frozen
class KnownTurn:
    """A message that was accepted, and its answer."""

    id: str
    """Id of the message."""
    said: str
    """Digest of its text."""
    files: str = ""
    """Digest of its files, "" for none."""
    answered: str | None = None
    """Digest of the answer, "" for silence; None if the client may have got another one, or there is none yet."""

    def fits(self, turn: HistoryTurn) -> bool:
        """Return whether a history shows this turn."""
        return self.said == turn.question and self.answered in (None, turn.answer)

    def is_answered_by(self, turn: HistoryTurn, *, is_named: bool) -> bool:
        """Return whether a history shows the answer of this turn.

        The message before it is another one where a front end had put texts of files around it, which it shows once. A short answer is
        not enough then, unless the client has said which chat it is (is_named).
        """
        if not self.answered or self.answered != turn.answer:
            return False
        return is_named or self.answered.endswith(_TELLING) or turn.question in ("", self.said)


@attrs.frozen(eq=False)
class ClientChat:
    """A chat of a client: the turns that its conversation has."""

    id: str
    """channelId of the conversation."""
    turns: tuple[KnownTurn, ...] = ()
    """Oldest first."""
    user: str = ""
    """Name in the field `user` of its requests, which may stand for a person with many chats."""
    has_history: bool = False
    """The client has shown that it sends what was said before."""
    last: tuple[str, str] = ("", "")
    """Beginnings of the last message and of its answer; not kept on disk."""

    @property
    def token(self) -> str:
        """Part of the id that names the token."""
        return self.id.rpartition("/")[0]

    def known_of(self, history: Sequence[HistoryTurn], *, is_named: bool) -> tuple[int, int]:
        """Return how many turns stay if a history counts, and from which turn of the history on nobody here has heard it.

        is_named: the client has said that it is this chat.
        """
        turns, same = self.turns, 0
        while same < min(len(turns), len(history)) and turns[same].fits(history[same]):
            same += 1
        kept, heard = self._further(history, same, same) if same or is_named else (0, 0)
        if heard == len(history):
            return kept, heard
        # The beginning is left out, or another one: an answer that is known tells where the rest of the history stands.
        for index in reversed(range(heard, len(history))):
            for end in range(len(turns), kept, -1):
                if turns[end - 1].is_answered_by(history[index], is_named=is_named):
                    return self._further(history, end, index + 1)
        return kept, heard

    def _further(self, history: Sequence[HistoryTurn], kept: int, heard: int) -> tuple[int, int]:
        """Return both places behind all messages that are the same; a person may have edited an answer."""
        while kept < len(self.turns) and heard < len(history) and self.turns[kept].said == history[heard].question:
            kept, heard = kept + 1, heard + 1
        return kept, heard


@attrs.frozen
class Placed:
    """The conversation of a request, and what its message does there."""

    chat: ClientChat
    """The chat as it was before."""
    kept: int
    """Turns of it that stay."""
    replaces: str = ""
    """Id of the message whose place it takes; "" for a next one."""
    is_again: bool = False
    """True for the same message, for another answer."""
    earlier: tuple[HistoryTurn, ...] = ()
    """Part of the client's history that the conversation does not have."""

    @property
    def metadata(self) -> dict[str, Json]:
        """Metadata of the message that only this program may set."""
        return {GOES_BACK: {"id": self.replaces, "again": self.is_again, "whole": True}} if self.replaces else {}

    def quotes(self) -> dict[str, Json]:
        """Return the metadata with what was said in the chat before, without the agent. The newest of it counts most."""
        quotes: list[Quote] = []
        room = LONGEST_QUOTES
        for turn in reversed(self.earlier):
            for text, author in ((turn.answered, "the assistant of that time"), (turn.said, "the person")):
                size = min(len(text), LONGEST_QUOTE)
                if not text.strip() or size > room or len(quotes) == MOST_EARLIER:
                    continue
                quotes.append(Quote("earlier", text, author))
                room -= size
        return quotes_metadata(quotes[::-1])


class ClientChats:
    """The chats of all clients, one object for each run of the server.

    Example::

        chats = ClientChats(journal)
        await chats.read()
        placed = chats.place(request, token_of(grant, home_token), user="", named="", is_front_end=False)
        turn = chats.begin(placed, request, message.id)       # before the message is sent
        await chats.keep(placed, turn)                        # when it is accepted
        if chats.note_answer(placed.chat.id, turn.id, "the answer"):
            await chats.keep_answer(placed.chat.id, turn.id)
    """

    def __init__(self, journal: Ref[JournalMessage]) -> None:
        self._store = LineStore("client-chats", journal)
        self._chats: OrderedDict[str, ClientChat] = OrderedDict()
        """By id; the one that was written to last is the last."""
        self._is_read = False
        self._reading = trio.Lock()

    async def read(self) -> None:
        """Read the chats, once. Raises StorageError and ActorError."""
        if self._is_read:
            return
        async with self._reading:
            if not self._is_read:
                await self._store.read(self._apply)
                self._is_read = True

    # ------------------------------------------------------------------ which chat

    def place(self, request: ClientRequest, token: str, *, user: str, named: str, is_front_end: bool) -> Placed:
        """Return the conversation that a request is about.

        token: the beginning of its id. user: of the request, "" for none. named: id of the chat by a header field, "" for none.
        is_front_end: it is that of a front end.
        """
        if named:
            return self._placed_in(self._named(token, named), request, is_edited=is_front_end)
        if user:
            return self._place_user(request, token, user)
        if not request.turns:
            return Placed(self._new(token), 0)
        return self._best(self._of(token), request) or Placed(self._new(token), 0, earlier=request.turns)

    def find_message(self, token: str, id: str) -> ClientChat | None:
        """Return the chat that has had a message with this id, which its client has chosen."""
        return next((chat for chat in self._of(token) if any(turn.id == id for turn in chat.turns)), None)

    def place_after(self, request: ClientRequest, token: str, id: str) -> Placed | None:
        """Return the place behind the message with this id, which the client names; None if no chat of the token has it."""
        chat = self.find_message(token, id)
        if chat is None:
            return None
        kept = next(n for n, turn in enumerate(chat.turns, 1) if turn.id == id)
        if kept == len(chat.turns):
            return Placed(chat, kept)
        turn = chat.turns[kept]
        return Placed(chat, kept, turn.id, (turn.said, turn.files) == (_digest(request.said), request.files))

    def _place_user(self, request: ClientRequest, token: str, user: str) -> Placed:
        """Return the conversation of a `user`. Most clients mean a conversation by it, some a person who has several chats."""
        first = self._named(token, user)
        chats = [chat for chat in self._of(token) if chat.user == user]
        if not request.turns:
            # A client that has shown its history would show it now, if there were one.
            if any(chat.has_history for chat in chats):
                return Placed(ClientChat(f"{first.id}-{secrets.token_hex(4)}", user=user), 0)
            return Placed(attrs.evolve(first, user=user), len(first.turns))
        found = self._best(chats, request)
        if found is not None:
            return found
        if first.turns:
            first = ClientChat(f"{first.id}-{secrets.token_hex(4)}")
        return Placed(attrs.evolve(first, user=user), 0, earlier=request.turns)

    def _named(self, token: str, name: str) -> ClientChat:
        id = _chat_id(token, name)
        return self._chats.get(id) or ClientChat(id)

    def _of(self, token: str) -> list[ClientChat]:
        """Return the chats of a token, the newest first."""
        return [chat for chat in reversed(self._chats.values()) if chat.token == token]

    def _new(self, token: str) -> ClientChat:
        return ClientChat(f"{token}/{secrets.token_hex(6)}")

    def _best(self, chats: Iterable[ClientChat], request: ClientRequest) -> Placed | None:
        """Return the chat that a history belongs to: one that goes on with it, then the one that knows most of it. None: no chat."""
        best: tuple[tuple[bool, bool, int, int], Placed] | None = None
        for chat in chats:
            kept, heard = chat.known_of(request.turns, is_named=False)
            if not kept:
                continue
            placed = self._placed_in(chat, request, is_edited=True, is_named=False)
            is_whole = heard == len(request.turns)
            rank = (is_whole and not placed.replaces, is_whole and placed.is_again, heard, kept)
            if best is None or rank > best[0]:
                best = rank, placed
        return None if best is None else best[1]

    def _placed_in(self, chat: ClientChat, request: ClientRequest, *, is_edited: bool, is_named: bool = True) -> Placed:
        """Return what the message of a request does in its chat.

        is_edited: a client that shows no history has none. Otherwise it may be one that leaves the history to the agent, until it has
        shown one. is_named: the client has said that it is this chat.
        """
        said, files = _digest(request.said), request.files
        if not request.turns and not (is_edited or chat.has_history):
            only = chat.turns[0] if len(chat.turns) == 1 else None
            if only is None or (only.said, only.files) != (said, files):
                return Placed(chat, len(chat.turns))
        kept, heard = chat.known_of(request.turns, is_named=is_named)
        earlier = request.turns[heard:]
        if kept == len(chat.turns):
            return Placed(chat, kept, earlier=earlier)
        turn = chat.turns[kept]
        is_again = (turn.said, turn.files) == (said, files) and not earlier
        return Placed(chat, kept, turn.id, is_again, earlier)

    def is_about_a_chat(self, token: str, text: str) -> bool:
        """Return whether a text holds the last message of a chat and its answer, each set off as in a history, with more around."""
        for chat in self._of(token):
            said, answered = chat.last
            if not (said and answered) or len(text) < len(said) + len(answered) + MOST_AROUND:
                continue
            before, end = r"(?:^|[\n:>\"'`])[ \t\"'`]*", "" if len(said) == SHOWN else r"[ \t]*(?:$|[\n\"'`<,\\])"
            found = re.search(before + re.escape(said) + end, text)
            if found and re.search(before + re.escape(answered), text[found.end() - 1 :]):
                return True
        return False

    # ------------------------------------------------------------------ what was said

    def begin(self, placed: Placed, request: ClientRequest, id: str) -> KnownTurn:
        """Note a message that is about to be sent, so that the next request finds it there. `keep` or `drop` must follow."""
        turn = KnownTurn(id, _digest(request.said), request.files)
        chat = attrs.evolve(
            placed.chat,
            turns=(*placed.chat.turns[: placed.kept], turn)[-MOST_TURNS:],
            has_history=placed.chat.has_history or bool(request.turns),
            last=(_first_line(request.said), ""),
        )
        self._put(chat)
        return turn

    def drop(self, placed: Placed, turn: KnownTurn) -> None:
        """Forget a message that was not accepted, unless another one has come since."""
        chat = self._chats.get(placed.chat.id)
        if chat is None or not chat.turns or chat.turns[-1] is not turn:
            return
        if placed.chat.turns:
            self._chats[chat.id] = placed.chat
        else:
            del self._chats[chat.id]

    async def keep(self, placed: Placed, turn: KnownTurn) -> None:
        """Write a message down that is accepted. While the disk refuses, it is known in memory only."""
        chat = self._chats.get(placed.chat.id, placed.chat)
        line: dict[str, Json] = {"chat": chat.id, "kept": placed.kept, **_turn_json(turn)}
        await self._append({**line, **_facts_json(chat)})

    def note_answer(self, id: str, message_id: str, text: str) -> bool:
        """Note the answer that a client gets; return whether there is anything to be kept. `keep_answer` follows."""
        chat = self._chats.get(id)
        if chat is None or not any(turn.id == message_id for turn in chat.turns):
            return False
        self._answer(chat, message_id, _digest(text))
        if chat.turns[-1].id == message_id:
            self._chats[id] = attrs.evolve(self._chats[id], last=(chat.last[0], _first_line(text)))
        return True

    async def keep_answer(self, id: str, message_id: str) -> None:
        """Write down which answer was noted. After a crash before that, any answer to the message counts as the one that was given."""
        chat = self._chats.get(id)
        for turn in chat.turns if chat is not None else ():
            if turn.id == message_id and turn.answered is not None:
                await self._append({"chat": id, "id": message_id, "answered": turn.answered})

    def _answer(self, chat: ClientChat, message_id: str, answered: str | None) -> None:
        turns = [attrs.evolve(turn, answered=answered) if turn.id == message_id else turn for turn in chat.turns]
        self._chats[chat.id] = attrs.evolve(chat, turns=tuple(turns))

    def _put(self, chat: ClientChat) -> None:
        """Put a chat behind the others, and forget one if there are too many."""
        self._chats[chat.id] = chat
        self._chats.move_to_end(chat.id)
        if len(self._chats) > MOST_CHATS:
            counts: dict[str, int] = {}
            for each in self._chats.values():
                counts[each.token] = counts.get(each.token, 0) + 1
            most = max(counts, key=lambda token: counts[token])
            del self._chats[next(id for id, each in self._chats.items() if each.token == most)]

    async def _append(self, line: Metadata) -> None:
        with suppress(StorageError, ActorError):
            await self._store.append(line)
            if self._store.lines > MOST_LINES:
                await self._store.rewrite(self._lines())

    def _lines(self) -> list[Metadata]:
        """Return the lines that say what is known now: the newest half of the turns at most, so that it is not written anew soon."""
        lines: list[Metadata] = []
        for chat in reversed(self._chats.values()):
            if len(lines) + len(chat.turns) > MOST_LINES // 2:
                break
            of_chat: list[Metadata] = [
                {"chat": chat.id, "kept": n, **_turn_json(turn), **_facts_json(chat)}
                for n, turn in enumerate(chat.turns)
            ]
            lines += of_chat[::-1]
        return lines[::-1]

    def _apply(self, line: Metadata) -> None:
        """Take over a line of the file."""
        id, message_id = str(line["chat"]), str(line["id"])
        chat = self._chats.get(id) or ClientChat(id)
        if "kept" not in line:
            self._answer(chat, message_id, str(line["answered"]))
            return
        kept, answered = line["kept"], line.get("answered")
        if type(kept) is not int or kept < 0:
            raise ValueError(f"kept: found {kept!r}")
        turn = KnownTurn(
            message_id, str(line["said"]), str(line.get("files", "")), None if answered is None else str(answered)
        )
        turns = (*chat.turns[:kept], turn)[-MOST_TURNS:]
        user, has_history = str(line.get("user", "")), line.get("history") is True
        self._put(ClientChat(id, turns, user, has_history))


def _turn_json(turn: KnownTurn) -> dict[str, Json]:
    return {
        name: value for name, value in attrs.asdict(turn).items() if value is not None and (value or name != "files")
    }


def _facts_json(chat: ClientChat) -> dict[str, Json]:
    return {**({"user": chat.user} if chat.user else {}), **({"history": True} if chat.has_history else {})}


def token_of(grant: TokenGrant, home_token: str) -> str:
    """Return the beginning of the ids of the chats of a client."""
    return "home" if grant.is_home else channel_id_of(grant, home_token)


def _chat_id(token: str, name: str) -> str:
    """Return the channelId of the chat that a client calls by a name. No name leads out of what is the token's."""
    key = name.replace("%", "%25").replace("/", "%2F")
    id = f"{token}/{key}"
    if len(key) <= LONGEST_ID and is_name(id):
        return id
    return f"{token}/{sha256(name.encode('utf-8', 'replace')).hexdigest()[:32]}"
