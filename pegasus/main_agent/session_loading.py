"""Loading a session at start: read, set torn lines aside, repair in place, write the outcome back (seed 000 "Startup Recovery")."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import attrgetter

from actors import Ref
from pegasus.conversation import BadEntry, Entry, OpenCall, Pictures, decode, encode, is_well_formed, open_calls, repair
from pegasus.main_agent.reply_tool import post_key, reply_result
from pegasus.main_agent.session import Session, until_written
from pegasus.main_agent.works import BackgroundWork
from pegasus.messages import OutboundMessage
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, Posted, ReadFile, ReplaceFile
from pegasus.wire import BadLine, ReadLines, read_lines

_log = get_logger("session")


async def load_session(
    path: str,
    journal: Ref[JournalMessage],
    clock: Callable[[], int],
    make_works: Callable[[], BackgroundWork] | None = None,
    up: Callable[[], None] = lambda: None,
) -> Session:
    """The session in `path` below data/, well-formed again; a missing file is an empty session.

    make_works: gives what knows which delegated work was begun. up: called before that is asked, for its answer may wait
    for others, even for one that is to be started again and waits for the end of this start.

    Raises StorageError if the file cannot be read.
    """
    content = await journal.ask(ReadFile, path)
    entries, bad = _decode_all(read_lines(content))
    if not bad and is_well_formed(entries):
        return await _with_pictures(path, entries, journal)
    repaired = repair(entries, await _recorded(entries, journal, make_works, up), clock())
    for note in (*map(str, bad), *repaired.notes):
        _log.warning("repaired the session", path=path, what=note)
    if repaired.notes or bad:
        # Bad lines go to a file of their own: they may hold something that a person can still read.
        if bad:
            aside = b"".join(line.raw.removesuffix(b"\n") + b"\n" for line in bad)
            await until_written(lambda: journal.ask(ReplaceFile, f"{path}.bad-{clock()}", aside), path)
        content = b"".join(map(encode, repaired.entries))
        await until_written(lambda: journal.ask(ReplaceFile, path, content), path)
    return await _with_pictures(path, repaired.entries, journal)


async def _with_pictures(path: str, entries: Sequence[Entry], journal: Ref[JournalMessage]) -> Session:
    pictures = Pictures()
    await pictures.load(journal, entries)
    return Session(path, entries, journal, pictures)


async def _recorded(
    entries: Sequence[Entry],
    journal: Ref[JournalMessage],
    make_works: Callable[[], BackgroundWork] | None,
    up: Callable[[], None],
) -> Callable[[OpenCall], str | None]:
    """What knows the true result of each open call whose effect is recorded elsewhere."""
    opened = open_calls(entries)
    replies = [made for made in opened if made.call.name == "reply"]
    stored = await journal.ask(Posted, tuple(post_key(made.item, made.call.id) for made in replies)) if replies else ()
    effects = {(made.item, made.call.id): message for made, message in zip(replies, stored, strict=True)}

    others = [made for made in opened if made.call.name != "reply"]
    begun: dict[tuple[int | None, str], str | None] = {}
    if others and make_works is not None:
        up()
        works = make_works()
        for made in others:
            begun[made.item, made.call.id] = await works.result_of(made, post_key(made.item, made.call.id))

    def recorded(made: OpenCall) -> str | None:
        if made.call.name != "reply":
            return begun.get((made.item, made.call.id))
        message = effects.get((made.item, made.call.id))
        return reply_result(message) if isinstance(message, OutboundMessage) else None

    return recorded


def _decode_all(lines: ReadLines) -> tuple[list[Entry], list[BadLine]]:
    """The entries, and the lines that hold none, in the order of the file."""
    entries: list[Entry] = []
    bad = list(lines.bad)
    for number, value in lines.good:
        try:
            entries.append(decode(value))
        except BadEntry as error:
            raw = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")
            bad.append(BadLine(number, 0, raw, f"{error} ({json.dumps(value)[:80]})"))
    return entries, sorted(bad, key=attrgetter("number"))
