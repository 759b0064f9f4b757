"""Access: whom an owner lets in, and what is allowed. The commands are `pegasus token …`, `pair …`, `open` and `approvals …`.

Tokens and people are changed through the running daemon or, while none runs, in the files. The link of `open` and the approvals need
the daemon: a call can only wait while there is one, and its task goes on in it.

The secret of a token is printed once, alone on a line of stdout, so that a script can take it. What else is to say is on stderr.

The functions for people (`tokens_text`, `approvals_text`) get the JSON of the control plane, whether it came from a
daemon or was made here from the files. They never get the objects behind it, so both ways print the same.

Of approvals all commands need the daemon. They return None where none runs, and `answering_command` reports that no agent is
running.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import click
import trio

from actors import Ref
from pegasus.access import (
    SCOPE_WORDS,
    SCOPES,
    AnswerScope,
    CallGrant,
    PairingBook,
    RequestRefused,
    TokenBook,
    TokenRefused,
    access_text,
    access_view,
    describe_grant,
    describe_revoked,
    read_answer,
    read_numbers,
    shown_subject,
    stored_tokens,
    tokens_view,
)
from pegasus.cli.commands import JSON, pegasus, program_name
from pegasus.cli.control import (
    Answer,
    answering_command,
    ask_daemon,
    change_files,
    describe_refusal,
    find_daemon,
    fit_terminal,
    print_text,
    report_failure,
    show,
)
from pegasus.client import ClientError
from pegasus.formatting import format_duration, format_time, plural, quote
from pegasus.host import Home, print_error, wall_clock
from pegasus.intake import add_token
from pegasus.messages import ApprovalNotice, Json
from pegasus.policy import make_visible
from pegasus.settings import Settings
from pegasus.storage import JournalMessage, StorageError
from pegasus.wire import from_wire

TOKENS = pegasus.subgroup("token", "Give clients tokens of their own, and take them back.")
PAIR = pegasus.subgroup("pair", "Let people in who wrote and are not known yet.")
APPROVALS = pegasus.subgroup("approvals", "What waits for your yes or no.")

# ------------------------------------------------------------------ tokens of clients

# A name is the token's key: it is shown in lists and logs, where the token itself never is.
_NAME = click.Argument(["name"])
B = TypeVar("B", TokenBook, PairingBook)
T = TypeVar("T")
_TOKEN_REFUSALS = (TokenRefused, StorageError)
"""Reasons for which nothing is changed, such as a name that does not exist."""


def tokens_text(answer: Answer) -> str:
    """Return a line for each token: name, scopes, what it is bound to, when it was made.

    The secret is not in the answer. The owner's own token is not listed: it is a file of the home and not in the book.
    """
    tokens = answer["tokens"]
    if not tokens:
        return "There is no token but the owner's, in the file `token` of the home."
    width = max(len(token["name"]) for token in tokens)
    return "\n".join(fit_terminal(f"{token['name']:<{width}}  {_describe_token(token)}") for token in tokens)


def _describe_token(token: Mapping[str, object]) -> str:
    """Return what a token may do, and where.

    A bridge serves all conversations of its type. A token without a type may be used by clients of any.
    """
    place = str(token.get("type") or "any type")
    if token.get("bridge"):
        place += " bridge"
    elif token.get("channelId"):
        place += f":{token['channelId']}"
    made = token.get("created")
    when = format_time(made, local=True) if isinstance(made, int) else ""
    scopes = token.get("scopes")
    return f"{','.join(scopes) if isinstance(scopes, list | tuple) else ''}  {place}  {when}".rstrip()


def new_token_text(answer: Answer) -> str:
    """Return the token alone; a note about it goes to stderr.

    stdout has the token and nothing else: `TOKEN=$(pegasus token add phone)` works.
    """
    print_error(
        f"The token {quote(answer['name'])} is below. It is shown only now; "
        f"`{program_name()} token revoke {answer['name']}` takes it back."
    )
    return str(answer["token"])


@answering_command(
    TOKENS,
    "add",
    _NAME,
    click.Option(["--type", "type_"], metavar="T", help="Channel type that the client must name."),
    click.Option(["--channel"], metavar="ID", help="Conversation that the client must name [token-NAME]."),
    # None and not False where it is not given: `answering_command` then sends no param, and the daemon's default counts.
    click.Option(["--bridge"], is_flag=True, default=None, help="It serves all conversations of its type."),
    click.Option(["--scope"], metavar="SCOPES", help=f"Of {', '.join(SCOPES)}, with commas [message]."),
    JSON,
    method="tokens.add",
    text=new_token_text,
    refusals=_TOKEN_REFUSALS,
)
def run_token_add(
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

    async def add(book: TokenBook) -> Answer:
        """Make the token, with the same checks as the daemon has."""
        token = await add_token(
            book, name, scope=scope or "", type=type_ or "", channel=channel or "", bridge=bool(bridge)
        )
        return {"name": name, "token": token}

    return _with_book(home, TokenBook(), add)


@answering_command(TOKENS, "list", JSON, method="tokens.list", text=tokens_text)
def run_token_list(home: Home, settings: Settings) -> Answer:
    """List the tokens, and what each may do; the secrets are not kept."""
    # Read without holding the home: the file is replaced as a whole, so it is never half written.
    return tokens_view(stored_tokens(home.data))


@answering_command(
    TOKENS,
    "revoke",
    _NAME,
    method="tokens.revoke",
    text=lambda answer: f"The token {quote(answer['name'])} counts no more.",
    refusals=_TOKEN_REFUSALS,
)
def run_token_revoke(home: Home, settings: Settings, *, name: str) -> Answer:
    """Make the token NAME count no more; connections with it end."""
    _with_book(home, TokenBook(), lambda book: book.revoke(name))
    return {"name": name}


def _with_book(home: Home, book: B, work: Callable[[B], Awaitable[T]]) -> T:
    """Return what `work` does with a book of the home, which is held meanwhile. Raises StorageError if the book cannot be read."""

    async def run(journal: Ref[JournalMessage]) -> T:
        await book.load(journal, wall_clock)
        await book.ensure_read()
        return await work(book)

    return change_files(home, run)


# ------------------------------------------------------------------ people

_PAIR_REFUSALS = (RequestRefused, StorageError)
"""Reasons for which nothing is changed, such as a code that nobody has."""


def people_text(answer: Answer) -> str:
    """Return a line for each open code and each person."""
    return access_text(answer, f"{program_name()} pair approve")


@answering_command(PAIR, "list", JSON, method="pair.list", text=people_text, refusals=_PAIR_REFUSALS)
def run_pair_list(home: Home, settings: Settings) -> Answer:
    """List open codes, and the people who were let in."""

    async def view(book: PairingBook) -> Answer:
        """Return people and codes as the control plane would. Codes that have run out meanwhile are left out."""
        return access_view(*book.view())

    # The home is held though nothing is changed: reading goes through a journal, and a home has one.
    return _with_book(home, PairingBook(), view)


@answering_command(
    PAIR,
    "approve",
    click.Argument(["code"]),
    method="pair.approve",
    text=lambda answer: f"{answer['who']} may write from now on.",
    refusals=_PAIR_REFUSALS,
)
def run_pair_approve(home: Home, settings: Settings, *, code: str) -> Answer:
    """Let in the person who has CODE."""
    return {"who": _with_book(home, PairingBook(), lambda book: book.approve(code, "the command line"))}


@answering_command(
    PAIR,
    "revoke",
    click.Argument(["who"]),
    method="pair.revoke",
    text=lambda answer: f"{answer['who']} is not let in any more.",
    refusals=_PAIR_REFUSALS,
)
def run_pair_revoke(home: Home, settings: Settings, *, who: str) -> Answer:
    """Let in WHO no more: TYPE:USERID, as the list shows it."""
    # A code that they still have counts no more either.
    _with_book(home, PairingBook(), lambda book: book.revoke(who))
    return {"who": who}


# ------------------------------------------------------------------ the web page

LINK_METHOD: Final = "http.link"
"""Method that makes a link which signs a browser in."""


@pegasus.declare(
    "open",
    click.Option(["--print", "only_print"], is_flag=True, help="Print the link; open nothing."),
    is_client=True,
)
def run_open(home: Home, settings: Settings, *, only_print: bool = False) -> int:
    """Open the web page in a browser, signed in. The link works once, and for 5 minutes."""
    try:
        # A page is served by a daemon only, so there is no way to answer this from files.
        answer = trio.run(ask_daemon, find_daemon(home, settings), LINK_METHOD, {})
    except ClientError as error:
        return report_failure(describe_refusal(error, LINK_METHOD))
    # The code in the link is a secret for five minutes: it is given to the browser, and printed only if there is none.
    url = str(answer["url"])
    if only_print:
        print_text(url)
    elif not webbrowser.open(url):
        print_error("there is no browser here; open this in one, within 5 minutes:")
        print_text(url)
    return 0


# ------------------------------------------------------------------ tool calls that wait

_ID = click.Argument(["id_"], metavar="ID")
# Without one of these options `scope` is None, `answering_command` sends none, and the daemon's default is "once".
_ALWAYS = click.Option(
    ["--always", "scope"],
    flag_value="always",
    hidden=True,
    help="For each later call of this tool with exactly these arguments, too.",
)
_SCOPE = click.Option(
    ["--scope", "scope"],
    type=click.Choice([*(scope.value for scope in AnswerScope), "always"]),
    hidden=True,
    help="How far the yes reaches.",
)


def read_places(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Return the places of calls, None without any. Raises click.BadParameter for a word that is no number. A callback of click."""
    if text is None:
        return None
    found = [read_numbers(word) for word in text.split()]
    if not found or None in found:
        raise click.BadParameter(f"found {quote(text)}, allowed: numbers of calls, as 1,3 or 1-3")
    return tuple(place for places in found for place in places or ())


_CALLS = click.Option(
    ["--calls"], callback=read_places, metavar="1,3", hidden=True, help="Only these of the calls; the others get a no."
)


_WORDS = click.Argument(["words"], nargs=-1, metavar="[SCOPE] [1,3] [NAME=VALUE]...")
_REASON = click.Argument(["reason"], required=False, metavar="[REASON]")


def approvals_text(answer: Answer) -> str:
    """Return what waits, each call with everything that would be run.

    Nothing is shortened: an owner who says yes must have seen the whole command.
    """
    # One block for each call, with a blank line between: a command may have many lines.
    blocks = [_approval_block(each) for each in answer["approvals"]]
    blocks += [f"{each['id']}  {each['text']}" for each in answer["requests"]]
    if not blocks:
        return "No call waits for you."
    return "\n\n".join([*blocks, "Answer with: approvals allow ID, or approvals deny ID"])


def _approval_block(approval: Answer) -> str:
    """Return one approval: its id and what it is, then what would be run or what a server asks, and answers beyond yes and no."""
    # The clocks of daemon and command are those of one machine. A call that has just run out has 0 seconds left.
    left = format_duration(max(0, approval["expires"] - wall_clock()) / 1000)
    notice = from_wire(dict(approval), ApprovalNotice)
    count, wider = len(notice.all_calls), [scope for scope in notice.scopes if scope != AnswerScope.ONCE]
    what = notice.tool if count == 1 else f"{count} calls"
    if notice.is_plan:
        what = f"a plan of {plural(count, 'call')}, each of which may be made once, later"
    lines = [f"{notice.id}  {what}, for {_person(approval)}; {left} left"]
    if count == 1:
        lines.append(f"why: {notice.why}")
    # The same text as in the chat, so that an owner reads a call in one form wherever it is shown.
    lines.append(shown_subject(notice))
    lines += [f"look twice: {note}" for note in notice.notes]
    if notice.is_plan:
        lines.append(f"read from outside so far: {', '.join(notice.read) or 'nothing'}")
    if notice.words:
        words = make_visible(notice.words).replace("\n", "\n  ")
        lines.append(f"in the agent's own words, which are no facts:\n  {words}")
    if count > 1:
        lines.append(f"for a part of them: approvals allow {notice.id} 1{',3' if count > 2 else ''}")
    if wider:
        lines.append(f"for later calls too: approvals allow {notice.id} {'|'.join(wider)}")
    return "\n".join(lines).replace("\n", "\n    ")


def _person(approval: Answer) -> str:
    """Return whose work it is: `owner, cli main`.

    It says for whom the work is done, which may be a guest, and on which channel it was asked for.
    """
    channel: Any = approval.get("channel") or {}
    names = [channel.get("type"), channel.get("channelId"), channel.get("userId")]
    return ", ".join(filter(None, [approval.get("who", ""), " ".join(str(name) for name in names if name)]))


def answered_text(answer: Answer) -> str:
    """Return what was decided.

    The state is that of the daemon after the answer. An answer that came too late is a refusal, and is not shown here.
    """
    if "request" in answer:
        return str(answer["request"]["text"])
    approval = answer["approval"]
    return f"{approval['id']} is {approval['state']}: {approval['tool']}"


@answering_command(APPROVALS, "list", JSON, method="approvals.list", text=approvals_text)
def run_approvals_list(home: Home, settings: Settings) -> None:
    """Show what waits: calls, people, changes of the persona.

    A call is shown with exactly what would be run.
    """


@APPROVALS.declare("allow", _ID, _WORDS, _ALWAYS, _SCOPE, _CALLS, is_client=True)
def run_allow(
    home: Home,
    settings: Settings,
    *,
    id_: str,
    words: tuple[str, ...] = (),
    scope: str | None = None,
    calls: tuple[int, ...] | None = None,
) -> int:
    """Let the calls of ID be made, or another request pass.

    1,3 or 1-3 names a part. SCOPE says how far the yes reaches: arguments (exactly these, always), tool or server (in this task),
    hour, or forever; the last four allow any arguments. If a server asks for values, give them.
    """
    values: dict[str, Json] = {word.partition("=")[0]: word.partition("=")[2] for word in words if "=" in word}
    typed, places, rest = read_answer(" ".join(word for word in words if "=" not in word))
    if rest or (scope is not None and typed is not AnswerScope.ONCE):
        raise click.BadParameter(f"found {quote(rest or typed)}; allowed: {SCOPE_WORDS} [NAME=VALUE]…")
    chosen: list[Json] = [*(calls or ()), *(places or ())]
    sent: dict[str, Json] = {"id": id_, "scope": scope or typed.value}
    sent |= ({"values": values} if values else {}) | ({"calls": chosen} if chosen else {})
    return show(home, settings, "approvals.allow", sent, answered_text)


# The word of the chat.
APPROVALS.commands["approve"] = APPROVALS.commands["allow"]


@answering_command(APPROVALS, "deny", _ID, _REASON, method="approvals.deny", text=answered_text)
def run_deny(home: Home, settings: Settings, *, id_: str, reason: str | None = None) -> None:
    """Refuse the call or request ID.

    The model reads the REASON of a call.
    """


def granted_text(answer: Answer) -> str:
    """Return what was allowed for later calls, a block for each grant."""
    blocks = [describe_grant(from_wire(dict(grant), CallGrant)) for grant in answer["granted"]]
    if not blocks:
        return "Nothing was allowed beyond single calls."
    return "\n\n".join([*blocks, "End one with: approvals revoke ID"])


def revoked_grant_text(answer: Answer) -> str:
    """Return what does not count any more."""
    return describe_revoked(from_wire(dict(answer["revoked"]), CallGrant))


@answering_command(APPROVALS, "granted", JSON, method="approvals.granted", text=granted_text)
def run_granted(home: Home, settings: Settings) -> None:
    """Show what you have allowed beyond single calls."""


@answering_command(APPROVALS, "revoke", _ID, method="approvals.revoke", text=revoked_grant_text)
def run_revoke_grant(home: Home, settings: Settings, *, id_: str) -> None:
    """End the grant ID, as `granted` shows it."""
