"""HTTP: the web page, the API for programs, and the WebSocket on the same port (h11 on Trio, Starlette's routes).

The daemon imports this package at its start. Starlette and what needs it are imported when the first client connects (`actor`).
docs/http.md describes the API for people who write a client.

Read the files in this order; each uses only those before it:

    deliveries  the webhook deliveries of the last day
    config      what the daemon gives the server
    visitors    the sender of a request, by `pegasus.access`, and the page that it comes from; a refusal with its status
    connection  one connection: socket, deadlines, h11
    requests    a request as handlers see it, and the forms of responses
    operations  a route of the table of all routes
    schemas     JSON Schema of attrs classes
    answers     bodies and answers, as classes; imported, like the next two, when somebody asks for the description
    forms       the table of what each route takes and answers
    description  the description of all routes (OpenAPI)
    markdown    Markdown texts as HTML that a page may insert
    routes      the handlers, and the tables of their routes
    app         the application: all routes behind the checks
    server      accepts connections
    actor       waits for the first client, then imports and runs the server
"""

from __future__ import annotations

from pegasus.web.actor import run_http
from pegasus.web.config import HttpConfig, WebServices
from pegasus.web.deliveries import HookDeliveries


def render_markdown(text: str) -> str:
    """Return the HTML of a Markdown text; see `markdown`. The parser is imported at the first call, when somebody reads the page."""
    from pegasus.web.markdown import render_markdown as render

    return render(text)


__all__ = ["HookDeliveries", "HttpConfig", "WebServices", "render_markdown", "run_http"]
