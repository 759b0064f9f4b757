"""Faults that are planted in the functions of the database: each breaks a promise that a trial must notice.

Some promises are kept twice over, as by the token and by the number of lines. Such a fault is planted in both, so that it shows which
promise is broken, and not that there is a second guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from tests.faults.server import NodesServer

Change = tuple[str, str, str]
"""Name of a function, a text in it, and what takes its place; or an empty name and a statement."""

ANY_TOKEN: Final = ("are_held", "if cardinality(lease_keys) = 0 then", "if true then")
ANY_LINES: Final = (
    ("commit", "or s.expected is null or f.lines = s.expected", "or true"),
    ("commit", "if place = 1 and has is distinct", "if false and has is distinct"),
)


@attrs.frozen
class Plant:
    """A fault of the engine. provoked_by: names of the faults in `FAULTS` that show it soon."""

    provoked_by: tuple[str, ...]
    changes: tuple[Change, ...]


_STALE = ("SIGSTOP for longer than the lease", "link silent for longer than the lease")
PLANTED: Final[Mapping[str, Plant]] = {
    "a stale token commits": Plant(_STALE, (ANY_TOKEN, *ANY_LINES)),
    "a stale token is told that its step is done": Plant(
        _STALE, (("commit", "perform pegasus.lose_lease()", "is_done := true"),)
    ),
    "a step that is repeated is done again": Plant(
        ("answer to a step lost",), (*ANY_LINES, ("commit", "is_done := not found", "is_done := false"))
    ),
    "a take gives no new token": Plant(
        _STALE,
        (
            ("take", "token = o.token + 1 from", "token = o.token from"),
            ("claim", "token = token + 1", "token = token"),
            *ANY_LINES,
        ),
    ),
    "a message that comes again is accepted again": Plant(
        ("kill -9", "database crashes"),
        (
            ("", "alter table pegasus.item drop constraint item_dedupe_key", ""),
            (
                "accept",
                "if found then return query select 'duplicate'",
                "if false then return query select 'duplicate'",
            ),
        ),
    ),
    "a reply that is posted again gets another number": Plant(
        ("answer to a step lost",),
        (
            ("", "alter table pegasus.reply drop constraint reply_pkey", ""),
            ("commit", "where r.key = s.post_keys[place];", "where false;"),
        ),
    ),
    "numbers of replies have gaps": Plant(
        ("kill -9",), (("commit", "set last = n.last + 1", "set last = n.last + 1 + (random() < 0.1)::int"),)
    ),
    "an item that is done takes the others of its chat along": Plant(
        ("kill -9",),
        (("note", "where i.n = d.n and", "where i.key = (select x.key from pegasus.item x where x.n = d.n) and"),),
    ),
    "what is acknowledged takes later replies along": Plant(
        ("kill -9", "SIGTERM"), (("note", "set acked = a.seq from", "set acked = n.last from"),)
    ),
    "a chat that is taken is due no more": Plant(
        ("kill -9 for longer than the lease",),
        (("take", "token = o.token + 1 from", "token = o.token + 1, due_at = null from"),),
    ),
}
"""What is changed, by a sentence."""


async def plant(server: NodesServer, name: str) -> None:
    """Change the functions, once the first node has made them."""
    while not await server.execute("select 1 from pg_proc where proname = 'forget'"):  # noqa: ASYNC110
        await trio.sleep(0.1)
    for function, old, new in PLANTED[name].changes:
        statement = old
        if function:
            [(text,)] = await server.execute(
                "select pg_get_functiondef(p.oid) from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
                f"where n.nspname = 'pegasus' and p.proname = '{function}'"
            )
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {function}"
            statement = text.replace(old, new)
        await server.execute(statement)
