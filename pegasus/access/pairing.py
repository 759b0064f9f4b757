"""Pairing: people who write and are not known yet get a code, and the owner lets them in by it.

Somebody unknown gets one short answer. Nothing that they have written is stored, reaches a model, or is delivered later.

* A code has 8 characters that do not look like one another, so 40 random bits. It is valid for an hour, and counts once.
* The answer is not repeated within 10 minutes, and after that with the same code as long as it is valid.
* A channel type has at most 3 open codes. Whoever writes beyond them gets no answer. So a flood of strangers can keep out other
  strangers for an hour, but costs nothing.

Who was let in and which codes are open is in `data/access.json`. A change is on disk before it takes effect. Requests and decisions
follow one another, so of two approvals of one code one finds it unknown. A code is on disk before it is sent: the owner can use every
code that somebody has received. A crash between the two loses the answer; then the person gets it when they write again.

    book = PairingBook()
    await book.load(journal, clock)
    await book.request(channel)                 # the stranger gets "… 7KQ2MX4P …"
    await book.approve("7KQ2MX4P", by="cli:main")   # "telegram:42"; `refuse` says no
    book.knows(channel)                         # True
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import attrs

from actors import Ref
from pegasus.access.approvals import OwnerRequest, RequestRefused
from pegasus.access.principal import person_of
from pegasus.formatting import format_time, quote
from pegasus.messages import ChannelInfo, Json
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, KeyedStore, Post, StorageError
from pegasus.wire import from_wire

ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Characters of a code: none looks like another one."""
CODE_LENGTH: Final = 8
VALID: Final = 3_600_000
"""Time for which a code is valid, ms."""
REPEAT: Final = 600_000
"""Time in which the answer is not repeated, ms."""
PAIRING: Final = "pairing"
"""Kind of these requests, and the key of the metadata of a message that tells an owner of a code; its value is the code."""
MOST_OPEN: Final = 3
"""Open codes of one channel type."""

_log = get_logger("access")


class PeopleUnreadable(StorageError):
    """The file that says who was let in cannot be read, so nobody knows whether a sender may write. str() says why.

    Example: raised by `Intake.send` for a sender whom the settings do not name; a service then sends the message again.
    """


@attrs.frozen(eq=False, repr=False)
class Person:
    """A person whom the owner has let in."""

    type: str
    """Channel type."""
    user_id: str
    """Id within the type: that of the user, or of the conversation where no user is named."""
    since: int = 0
    """Wall clock, ms."""
    by: str = ""
    """Place where the owner has said so."""

    @property
    def who(self) -> str:
        """Name by which the owner revokes it."""
        return f"{self.type}:{self.user_id}"


@attrs.frozen(eq=False, repr=False)
class OpenCode:
    """A code that waits for the owner."""

    code: str
    """Text of CODE_LENGTH characters of ALPHABET, which the person passes on to the owner."""
    channel: ChannelInfo
    """The channel that the person has written on."""
    made: int
    """Wall clock, ms."""
    asked: int = 0
    """Time of the last answer: wall clock, ms; 0 if it was not yet."""
    is_refused: bool = False
    """True if the owner has said no. The person gets no other code for as long as this one would have been valid."""

    @property
    def key(self) -> tuple[str, str]:
        """Type and id of the person."""
        return self.channel.type, person_of(self.channel)

    @property
    def who(self) -> str:
        """Name of the person."""
        return ":".join(self.key)


class PairingBook:
    """People who were let in, and open codes."""

    def __init__(self) -> None:
        self._store: KeyedStore[Person | OpenCode] = KeyedStore("access", _read_entry)
        """People and codes, oldest first. Its lock is held during a request and a decision, so that they follow one another."""
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""
        self._journal: Ref[JournalMessage] | None = None
        """Writes the answers; None before `load`, and then nobody is let in."""
        self.owner_channels: Sequence[ChannelInfo] = ()
        """Channels on which owners are told of a new code, with a button that lets the person in."""
        self._clock: Callable[[], int] = lambda: 0

    async def load(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read the file, and write changes to this journal from now on. clock: wall clock, ms.

        What cannot be understood lets nobody in. A file that cannot be read is read again before it is needed (`is_let_in`) and before
        the next change. Never raises.
        """
        self._journal, self._clock = journal, clock
        await self._store.open(journal)

    async def ensure_read(self) -> None:
        """Read the file if that has not succeeded yet. Raises StorageError and ActorError."""
        await self._store.ensure_read()

    async def is_let_in(self, channel: ChannelInfo) -> bool:
        """Return whether the owner has let in the person on this channel, after reading the file if that has not succeeded yet.

        Raises PeopleUnreadable and ActorError if it cannot be read. A False would make strangers of people whom the owner knows.
        """
        if not self._store.is_read:
            try:
                await self.ensure_read()
            except StorageError as error:
                raise PeopleUnreadable(f"the file that says who was let in cannot be read: {error}") from error
        return self.knows(channel)

    def knows(self, channel: ChannelInfo) -> bool:
        """Return whether the person on this channel is in memory as one whom the owner has let in."""
        return _person_key(channel.type, person_of(channel)) in self._store.rows

    def view(self) -> tuple[Sequence[Person], Sequence[OpenCode]]:
        """Return the people who were let in, and the codes that are valid, both oldest first."""
        return [row for row in self._store.rows.values() if isinstance(row, Person)], self._open()

    async def waiting(self) -> Sequence[OwnerRequest]:
        """Return the people who wait to be let in, by their codes."""
        await self.ensure_read()
        return [OwnerRequest(code.code, PAIRING, f"{code.who} wants to write to me") for code in self._open()]

    def has_request(self, id: str) -> bool:
        """Return whether this is a code, and not the id of an approval, which is shorter."""
        return len(id) == CODE_LENGTH

    async def answer(self, id: str, *, is_allowed: bool, by: str) -> OwnerRequest:
        """Let in the person who has this code, or refuse that."""
        if is_allowed:
            text = f"{await self.approve(id, by)} may write to me from now on."
        else:
            text = f"{await self.refuse(id)} is not let in."
        return OwnerRequest(id.upper(), PAIRING, text)

    async def request(self, channel: ChannelInfo) -> None:
        """Send somebody unknown the answer with a code, unless they have it or there are too many open codes.

        Raises StorageError and ActorError if the disk refuses, or the file was never read; then they have got nothing.
        """
        async with self._store.change():
            now, codes = self._clock(), self._valid()
            key = channel.type, person_of(channel)
            if self._journal is None or self.knows(channel):
                return
            # A person keeps the code for as long as it is valid. Another one with each message would fill the file, and
            # the owner could not tell which one counts.
            found = next((code for code in codes if code.key == key), None)
            if found is not None and (found.is_refused or 0 <= now - found.asked < REPEAT):
                return
            if found is None:
                # A flood of strangers fills neither the file nor the outbox then: beyond the bound nobody gets an answer.
                if sum(code.channel.type == channel.type for code in self._open()) >= MOST_OPEN:
                    _log.info("somebody unknown gets no code: there are too many open ones", channel=channel.type)
                    return
                found = OpenCode(self._new_code(), channel, now)
                # The code is on disk before it is sent: a code that the owner types after a crash must still be known.
                await self._keep(found)
                _log.info("somebody unknown has written", who=found.who)
            minutes = max(1, round((found.made + VALID - now) / 60_000))
            post = Post(f"pairing/{found.code}/{now}", _answer(found.code, minutes), channel.channel_id, channel)
            posts = [attrs.evolve(post, channel_type=channel.type), *self._questions(found)]
            await self._journal.ask(Commit, (), tuple(posts))
            # Noted after the answer is on disk. A crash in between sends the answer once more, and does not leave the
            # person without one.
            await self._keep(attrs.evolve(found, asked=now))

    def _questions(self, code: OpenCode) -> list[Post]:
        """Return what owners are told of a code, once for each code. It has nothing in it that the person could choose but the id."""
        text = f"{code.who} wants to write to me. /pair {code.code} lets them in."
        return [
            Post(
                f"pairing/{code.code}/{place.address}",
                text,
                place.channel_id,
                place,
                place.type,
                None,
                {PAIRING: code.code},
            )
            for place in self.owner_channels
        ]

    async def approve(self, code: str, by: str) -> str:
        """Let in the person who has this code; return who that is, `<type>:<userId>`.

        by: where the owner has said so. Raises RequestRefused for a code that is unknown, used or too old, and StorageError or
        ActorError if it may not be on disk.
        """
        async with self._store.change():
            found = self._require_open(code)
            person = Person(*found.key, self._clock(), by)
            await self._store.save({_person_key(*found.key): person}, self._codes_to_drop(found.who))
        _log.info("let somebody in", who=person.who, by=by)
        return person.who

    async def refuse(self, code: str) -> str:
        """Let the code count no more; return whose it was. Raises as `approve` does."""
        async with self._store.change():
            found = self._require_open(code)
            await self._keep(attrs.evolve(found, is_refused=True))
        _log.info("refused to let somebody in", who=found.who)
        return found.who

    def _require_open(self, code: str) -> OpenCode:
        """Return the open code that somebody has typed, in lower case or with blanks around it. Raises RequestRefused."""
        # Letters beyond ASCII may become ASCII ones in upper case, as the long s does. No code has them.
        wanted = code.strip().upper() if code.isascii() else ""
        found = next((each for each in self._open() if each.code == wanted), None)
        if found is None:
            raise RequestRefused(
                f"there is no open code {quote(code, 20)}; a code counts once and for an hour, "
                "and whoever writes again gets a new one"
            )
        return found

    async def revoke(self, who: str) -> None:
        """Let a person in no more. who: `<type>:<userId>`. Raises RequestRefused for an unknown one, StorageError, ActorError."""
        async with self._store.change():
            if f"people/{who}" not in self._store.rows and all(code.who != who for code in self._open()):
                raise RequestRefused(
                    f"nobody was let in as {quote(who, 80)}; `pair list` shows all, and who is in allow_from stands in the settings"
                )
            await self._store.save(delete=[f"people/{who}", *self._codes_to_drop(who)])
        _log.info("let somebody in no more", who=who)

    def _valid(self) -> list[OpenCode]:
        return [row for row in self._store.rows.values() if isinstance(row, OpenCode) and self._is_valid(row)]

    def _open(self) -> list[OpenCode]:
        """Return the codes that wait for the owner."""
        return [code for code in self._valid() if not code.is_refused]

    def _is_valid(self, code: OpenCode) -> bool:
        """Return whether a code is valid now. A clock that was set back makes none valid for longer."""
        return 0 <= self._clock() - code.made < VALID

    def _codes_to_drop(self, who: str = "") -> list[str]:
        """Return the keys of codes that are not valid any more, and of those of this person."""
        codes = [(key, row) for key, row in self._store.rows.items() if isinstance(row, OpenCode)]
        return [key for key, code in codes if code.who == who or not self._is_valid(code)]

    async def _keep(self, code: OpenCode) -> None:
        """Write a code, and forget those that are not valid any more."""
        await self._store.save({f"codes/{code.code}": code}, self._codes_to_drop())

    def _new_code(self) -> str:
        """Return a random code that is not in use."""
        while True:
            code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
            if f"codes/{code}" not in self._store.rows:
                return code


def _person_key(type: str, id: str) -> str:
    return f"people/{type}:{id}"


def _read_entry(name: str, value: Json) -> tuple[str, Person | OpenCode]:
    """Return key and value of an entry of the file. name: its list. Raises ValueError."""
    if name == "people":
        person = from_wire(value, Person)
        return _person_key(person.type, person.user_id), person
    code = from_wire(value, OpenCode)
    if len(code.code) != CODE_LENGTH or not set(code.code) <= set(ALPHABET):
        raise ValueError("a code that is none")
    return f"codes/{code.code}", code


def _answer(code: str, minutes: int) -> str:
    return (
        f"We have not met yet, so I have not read your message. Give my owner this code: {code}. "
        f"It is valid for {minutes} minutes; after you have been let in, write again."
    )


def access_view(people: Collection[Person], codes: Collection[OpenCode]) -> dict[str, Json]:
    """Return people and codes as the control plane and the command line show them."""
    return {
        "people": [{"who": person.who, "since": person.since, "by": person.by} for person in people],
        "codes": [
            {"code": code.code, "who": code.who, "channelId": code.channel.channel_id, "expires": code.made + VALID}
            for code in codes
        ],
    }


def access_text(view: Mapping[str, Json], command: str) -> str:
    """Return a view for people. command: how the owner approves, as "/pair"."""
    lines = []
    codes, people = view["codes"], view["people"]
    for code in codes if isinstance(codes, list) else ():
        if isinstance(code, Mapping):
            until = format_time(int(str(code["expires"])), local=True)
            lines.append(
                f"{code['code']}  {code['who']} wants to write to me (until {until}); {command} {code['code']} lets them in"
            )
    for person in people if isinstance(people, list) else ():
        if isinstance(person, Mapping):
            since = format_time(int(str(person["since"])), local=True)
            lines.append(f"{person['who']}  let in {since} by {person['by']}")
    return "\n".join(lines) or "Nobody waits to be let in, and nobody was."
