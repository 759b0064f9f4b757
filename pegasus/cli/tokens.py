"""`pegasus token …`: a token for each client, with what it may do; through the running daemon, or in the files.

The secret is printed once, alone on a line of stdout, so that a script can take it. What else is to say is on stderr.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from actors import Ref
from pegasus.cli.commands import JSON, pegasus, program_name
from pegasus.cli.control import Answer, change_files, fit_terminal, query
from pegasus.formatting import format_time, quote
from pegasus.host import Home, print_error, wall_clock
from pegasus.intake import add_token
from pegasus.policy import SCOPES, TokenBook, TokenRefused, parse_tokens, tokens_view
from pegasus.settings import Settings
from pegasus.storage import JournalMessage, StorageError

TOKENS = pegasus.subgroup("token", "Give clients tokens of their own, and take them back.")

_NAME = click.Argument(["name"])
_REFUSALS = (TokenRefused, StorageError)
"""Reasons for which nothing is changed, such as a name that does not exist."""


def list_text(answer: Answer) -> str:
    """Return a line for each token: name, scopes, what it is bound to, when it was made."""
    tokens = answer["tokens"]
    if not tokens:
        return "There is no token but the owner's, in the file `token` of the home."
    width = max(len(token["name"]) for token in tokens)
    return "\n".join(fit_terminal(f"{token['name']:<{width}}  {_describe(token)}") for token in tokens)


def _describe(token: Mapping[str, object]) -> str:
    """Return what a token may do, and where."""
    place = str(token.get("type") or "any type")
    if token.get("bridge"):
        place += " bridge"
    elif token.get("channelId"):
        place += f":{token['channelId']}"
    made = token.get("created")
    when = format_time(made, local=True) if isinstance(made, int) else ""
    scopes = token.get("scopes")
    return f"{','.join(scopes) if isinstance(scopes, list | tuple) else ''}  {place}  {when}".rstrip()


def add_text(answer: Answer) -> str:
    """Return the token alone; a note about it goes to stderr."""
    print_error(
        f"The token {quote(answer['name'])} is below. It is shown only now; "
        f"`{program_name()} token revoke {answer['name']}` takes it back."
    )
    return str(answer["token"])


@query(
    TOKENS,
    "add",
    _NAME,
    click.Option(["--type", "type_"], metavar="T", help="Channel type that the client must name."),
    click.Option(["--channel"], metavar="ID", help="Conversation that the client must name."),
    click.Option(["--bridge"], is_flag=True, default=None, help="It serves all conversations of its type."),
    click.Option(["--scope"], metavar="SCOPES", help=f"Of {', '.join(SCOPES)}, with commas [message]."),
    JSON,
    method="tokens.add",
    text=add_text,
    refusals=_REFUSALS,
)
def run_add(
    home: Home,
    settings: Settings,
    *,
    name: str,
    type_: str | None,
    channel: str | None,
    bridge: bool | None,
    scope: str | None,
) -> Answer:
    """Make the token NAME, and print it. "message": send and get replies; "read": also look; "control": all that an owner may."""

    async def add(journal: Ref[JournalMessage]) -> Answer:
        book = await _book(journal)
        token = await add_token(
            book, name, scope=scope or "", type=type_ or "", channel=channel or "", bridge=bool(bridge)
        )
        return {"name": name, "token": token}

    return change_files(home, add)


@query(TOKENS, "list", JSON, method="tokens.list", text=list_text)
def run_list(home: Home, settings: Settings) -> Answer:
    """List the tokens, and what each may do; the secrets are not kept."""
    try:
        content = (home.data / "tokens.json").read_bytes()
    except FileNotFoundError:
        content = b""
    return tokens_view(parse_tokens(content)[0])


@query(
    TOKENS,
    "revoke",
    _NAME,
    method="tokens.revoke",
    text=lambda answer: f"The token {quote(answer['name'])} counts no more.",
    refusals=_REFUSALS,
)
def run_revoke(home: Home, settings: Settings, *, name: str) -> Answer:
    """Make the token NAME count no more; connections with it end."""

    async def revoke(journal: Ref[JournalMessage]) -> Answer:
        await (await _book(journal)).revoke(name)
        return {"name": name}

    return change_files(home, revoke)


async def _book(journal: Ref[JournalMessage]) -> TokenBook:
    """Return the tokens of the home, whose changes this journal writes."""
    book = TokenBook()
    await book.load(journal, wall_clock)
    return book
