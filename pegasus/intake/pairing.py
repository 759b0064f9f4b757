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
    await book.approve("7KQ2MX4P", by="cli:main")   # "telegram:42"
    book.knows(channel)                         # True
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import attrs

from actors import ActorError, Ref
from pegasus.formatting import format_time, quote
from pegasus.intake.access import person_of
from pegasus.messages import ChannelInfo, Json
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, Post, StateFile, StorageError
from pegasus.wire import WireError, decode_object, from_wire, to_wire

ACCESS_FILE: Final = "access.json"
"""File below data/: `{"people": [{"type", "userId", "since", "by"}], "codes": [{"code", "channel", "made", "asked"}]}`."""
ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Characters of a code: none looks like another one."""
CODE_LENGTH: Final = 8
VALID: Final = 3_600_000
"""Time for which a code is valid, ms."""
REPEAT: Final = 600_000
"""Time in which the answer is not repeated, ms."""
PAIRING: Final = "pairing"
"""Key of the metadata of a message that tells an owner of a code; its value is the code."""
MOST_OPEN: Final = 3
"""Open codes of one channel type."""

T = TypeVar("T", bound=attrs.AttrsInstance)
_log = get_logger("access")


class PairingRefused(ValueError):
    """A code or a person is not known. str() says what to do.

    Example: `/pair ABCD2345` of an owner is answered with its text if no such code is open.
    """


class PeopleUnreadable(StorageError):
    """The file that says who was let in cannot be read, so nobody knows whether a sender may write. str() says why.

    Example: raised by `Intake.send` for a sender whom the settings do not name; a service then sends the message again.
    """


@attrs.frozen(eq=False, repr=False)
class Person:
    """A person whom the owner has let in.

    Example: `Person("telegram", "4711", since=1_772_029_800_000, by="cli:main").who` is "telegram:4711".
    """

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
    """A code that waits for the owner.

    Example: `OpenCode("ABCD2345", ChannelInfo("telegram", "4711"), made=1_772_029_800_000)`.
    """

    code: str
    """Text of CODE_LENGTH characters of ALPHABET, which the person passes on to the owner."""
    channel: ChannelInfo
    """The channel that the person has written on."""
    made: int
    """Wall clock, ms."""
    asked: int = 0
    """Time of the last answer: wall clock, ms; 0 if it was not yet."""

    @property
    def key(self) -> tuple[str, str]:
        """Type and id of the person."""
        return self.channel.type, person_of(self.channel)

    @property
    def who(self) -> str:
        """Name of the person."""
        return ":".join(self.key)


class PairingBook:
    """People who were let in, and open codes.

    Example: see the top of this file.
    """

    def __init__(self) -> None:
        self._people: dict[tuple[str, str], Person] = {}
        """By type and id."""
        self._codes: dict[str, OpenCode] = {}
        """By code, oldest first."""
        self._file = StateFile(
            ACCESS_FILE, self._take_over, lambda: _content(self._people.values(), self._codes.values())
        )
        """Its lock is held during a request and a decision, so that they follow one another."""
        self._journal: Ref[JournalMessage] | None = None
        """Writes the answers; None before `load`, and then nobody is let in."""
        self.owner_channels: Sequence[ChannelInfo] = ()
        """Channels on which owners are told of a new code, with a button that lets the person in."""
        self._clock: Callable[[], int] = lambda: 0

    async def load(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read the file, and write changes to this journal from now on. clock: wall clock, ms.

        What cannot be understood lets nobody in; the file is then kept beside its place, which is logged. A file that cannot be read
        is read again before it is needed (`is_let_in`) and before the next change. Never raises.
        """
        self._journal, self._clock = journal, clock
        self._file.use(journal, clock)
        try:
            await self.ensure_read()
        except (StorageError, ActorError) as error:
            _log.error("the file of people cannot be read: whoever may be in it has to wait", error=str(error))

    async def ensure_read(self) -> None:
        """Read the file if that has not succeeded yet. Raises StorageError and ActorError."""
        await self._file.ensure_read()

    def _take_over(self, content: bytes) -> list[str]:
        """Put what the file holds into memory; return what is wrong with entries that do not count."""
        people, codes, problems = parse_access(content)
        self._people = {(person.type, person.user_id): person for person in people}
        self._codes = {code.code: code for code in codes}
        return problems

    async def is_let_in(self, channel: ChannelInfo) -> bool:
        """Return whether the owner has let in the person on this channel, after reading the file if that has not succeeded yet.

        Raises PeopleUnreadable and ActorError if it cannot be read. A False would make strangers of people whom the owner knows.
        """
        if not self._file.is_read:
            try:
                await self.ensure_read()
            except StorageError as error:
                raise PeopleUnreadable(f"the file that says who was let in cannot be read: {error}") from error
        return self.knows(channel)

    def knows(self, channel: ChannelInfo) -> bool:
        """Return whether the person on this channel is in memory as one whom the owner has let in."""
        return (channel.type, person_of(channel)) in self._people

    def view(self) -> tuple[Sequence[Person], Sequence[OpenCode]]:
        """Return the people who were let in, and the codes that are valid, both oldest first."""
        return list(self._people.values()), self._valid()

    async def request(self, channel: ChannelInfo) -> None:
        """Send somebody unknown the answer with a code, unless they have it or there are too many open codes.

        Raises StorageError and ActorError if the disk refuses, or the file was never read; then they have got nothing.
        """
        async with self._file.change():
            now, codes = self._clock(), self._valid()
            key = channel.type, person_of(channel)
            if self._journal is None or key in self._people:
                return
            # A person keeps the code for as long as it is valid. Another one with each message would fill the file, and
            # the owner could not tell which one counts.
            found = next((code for code in codes if code.key == key), None)
            if found is not None and 0 <= now - found.asked < REPEAT:
                return
            if found is None:
                # A flood of strangers fills neither the file nor the outbox then: beyond the bound nobody gets an answer.
                if sum(code.channel.type == channel.type for code in codes) >= MOST_OPEN:
                    _log.info("somebody unknown gets no code: there are too many open ones", channel=channel.type)
                    return
                found = OpenCode(_new_code(self._codes), channel, now)
                # The code is on disk before it is sent: a code that the owner types after a crash must still be known.
                await self._keep([*codes, found])
                _log.info("somebody unknown has written", who=found.who)
            minutes = max(1, round((found.made + VALID - now) / 60_000))
            post = Post(f"pairing/{found.code}/{now}", _answer(found.code, minutes), channel.channel_id, channel)
            posts = [attrs.evolve(post, channel_type=channel.type), *self._questions(found)]
            await self._journal.ask(Commit, (), tuple(posts))
            # Noted after the answer is on disk. A crash in between sends the answer once more, and does not leave the
            # person without one.
            asked = attrs.evolve(found, asked=now)
            await self._keep([asked if code is found else code for code in self._codes.values()])

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

        by: where the owner has said so. Raises PairingRefused for a code that is unknown, used or too old, and StorageError or
        ActorError if it may not be on disk.
        """
        async with self._file.change():
            # Letters beyond ASCII may become ASCII ones in upper case, as the long s does. No code has them.
            wanted = code.strip().upper() if code.isascii() else ""
            found = next((each for each in self._valid() if each.code == wanted), None)
            if found is None:
                raise PairingRefused(
                    f"there is no open code {quote(code, 20)}; a code counts once and for an hour, "
                    "and whoever writes again gets a new one"
                )
            person = Person(*found.key, self._clock(), by)
            people = {**self._people, found.key: person}
            codes = [each for each in self._valid() if each.key != found.key]
            await self._file.write(_content(people.values(), codes))
            self._people, self._codes = people, {each.code: each for each in codes}
        _log.info("let somebody in", who=person.who, by=by)
        return person.who

    async def revoke(self, who: str) -> None:
        """Let a person in no more. who: `<type>:<userId>`. Raises PairingRefused for an unknown one, StorageError, ActorError."""
        async with self._file.change():
            people = {key: person for key, person in self._people.items() if person.who != who}
            codes = [code for code in self._valid() if code.who != who]
            if len(people) == len(self._people) and len(codes) == len(self._valid()):
                raise PairingRefused(
                    f"nobody was let in as {quote(who, 80)}; `pair list` shows all, and who is in allow_from stands in the settings"
                )
            await self._file.write(_content(people.values(), codes))
            self._people, self._codes = people, {code.code: code for code in codes}
        _log.info("let somebody in no more", who=who)

    def _valid(self) -> list[OpenCode]:
        """Return the codes that are valid now. A clock that was set back makes none valid for longer."""
        now = self._clock()
        return [code for code in self._codes.values() if 0 <= now - code.made < VALID]

    async def _keep(self, codes: Collection[OpenCode]) -> None:
        """Write and take over these codes."""
        await self._file.write(_content(self._people.values(), codes))
        self._codes = {code.code: code for code in codes}


def _new_code(taken: Collection[str]) -> str:
    """Return a random code that is not in use."""
    while True:
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
        if code not in taken:
            return code


def _answer(code: str, minutes: int) -> str:
    return (
        f"We have not met yet, so I have not read your message. Give my owner this code: {code}. "
        f"It is valid for {minutes} minutes; after you have been let in, write again."
    )


def parse_access(content: bytes) -> tuple[list[Person], list[OpenCode], list[str]]:
    """Return people and codes in the content of the file, and what is wrong with other entries."""
    if not content:
        return [], [], []
    try:
        record = decode_object(content)
    except ValueError as error:
        return [], [], [str(error)]
    problems: list[str] = []
    people = _parse_entries(record, "people", Person, problems)
    codes = _parse_entries(record, "codes", OpenCode, problems)
    good = [code for code in codes if len(code.code) == CODE_LENGTH and set(code.code) <= set(ALPHABET)]
    if len(good) < len(codes):
        problems.append("codes: a code that is none")
    return people, good, problems


def _content(people: Iterable[Person], codes: Iterable[OpenCode]) -> dict[str, Json]:
    """Return people and codes as they stand in the file."""
    return {"people": [*map(to_wire, people)], "codes": [*map(to_wire, codes)]}


def _parse_entries(record: Mapping[str, Json], name: str, cls: type[T], problems: list[str]) -> list[T]:
    """Return the entries of a list in the file that can be read; add what is wrong with the others to `problems`."""
    entries = record.get(name, [])
    if not isinstance(entries, list):
        problems.append(f"{name}: no list")
        return []
    found: list[T] = []
    for number, entry in enumerate(entries, start=1):
        try:
            found.append(from_wire(entry, cls))
        except WireError as error:
            problems.append(f"{name}, entry {number}: {error}")
    return found


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
