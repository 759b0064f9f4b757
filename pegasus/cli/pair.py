"""`pegasus pair …`: people who have written and are not known yet; through the running daemon, or in the files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from actors import Ref
from pegasus.cli.commands import JSON, pegasus, program_name
from pegasus.cli.control import Answer, change_files, query
from pegasus.host import Home, wall_clock
from pegasus.intake import PairingBook, PairingRefused, access_text, access_view
from pegasus.settings import Settings
from pegasus.storage import JournalMessage, StorageError

PAIR = pegasus.subgroup("pair", "Let people in who wrote and are not known yet.")

_REFUSALS = (PairingRefused, StorageError)
"""Reasons for which nothing is changed, such as a code that nobody has."""


def list_text(answer: Answer) -> str:
    """Return a line for each open code and each person."""
    return access_text(answer, f"{program_name()} pair approve")


@query(PAIR, "list", JSON, method="pair.list", text=list_text, refusals=_REFUSALS)
def run_list(home: Home, settings: Settings) -> Answer:
    """List open codes, and the people who were let in."""

    async def view(book: PairingBook) -> Answer:
        return access_view(*book.view())

    return _with_book(home, view)


@query(
    PAIR,
    "approve",
    click.Argument(["code"]),
    method="pair.approve",
    text=lambda answer: f"{answer['who']} may write from now on.",
    refusals=_REFUSALS,
)
def run_approve(home: Home, settings: Settings, *, code: str) -> Answer:
    """Let in the person who has CODE."""

    async def approve(book: PairingBook) -> Answer:
        return {"who": await book.approve(code, "the command line")}

    return _with_book(home, approve)


@query(
    PAIR,
    "revoke",
    click.Argument(["who"]),
    method="pair.revoke",
    text=lambda answer: f"{answer['who']} is not let in any more.",
    refusals=_REFUSALS,
)
def run_revoke(home: Home, settings: Settings, *, who: str) -> Answer:
    """Let in WHO no more: TYPE:USERID, as the list shows it."""

    async def revoke(book: PairingBook) -> Answer:
        await book.revoke(who)
        return {"who": who}

    return _with_book(home, revoke)


def _with_book(home: Home, use: Callable[[PairingBook], Awaitable[Answer]]) -> Answer:
    """Return what `use` returns; it gets the people of the home, whose changes a journal writes."""

    async def load(journal: Ref[JournalMessage]) -> Answer:
        book = PairingBook()
        await book.load(journal, wall_clock)
        return await use(book)

    return change_files(home, load)
