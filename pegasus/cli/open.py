"""`pegasus open`: the web page, signed in by a link that works once."""

from __future__ import annotations

import webbrowser

import click
import trio

from pegasus.cli.commands import pegasus
from pegasus.cli.control import ask_daemon, describe_refusal, find_daemon, print_text, report_failure
from pegasus.client import ClientError
from pegasus.host import Home, print_error
from pegasus.settings import Settings

METHOD = "http.link"


@pegasus.declare(
    "open",
    click.Option(["--print", "only_print"], is_flag=True, help="Print the link; open nothing."),
    is_client=True,
)
def run_open(home: Home, settings: Settings, *, only_print: bool = False) -> int:
    """Open the web page in a browser, signed in. The link works once, and for 5 minutes."""
    try:
        answer = trio.run(ask_daemon, find_daemon(home, settings), METHOD, {})
    except ClientError as error:
        return report_failure(describe_refusal(error, METHOD))
    url = str(answer["url"])
    if only_print:
        print_text(url)
    elif not webbrowser.open(url):
        print_error("there is no browser here; open this in one, within 5 minutes:")
        print_text(url)
    return 0
