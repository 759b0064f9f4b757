"""HTTP: the web page, the API for programs, and the WebSocket on the same port (Hypercorn's protocol on Trio, Starlette's routes).

The daemon imports this package at its start. Hypercorn and Starlette are imported when the first client connects (`actor`).
docs/http.md describes the API for people who write a client.

Read the files in this order; each uses only those before it:

    errors         a refusal with its status
    sessions       who is signed in
    config         what the daemon gives the server
    access         who sends a request, and from which page
    connection     one connection: socket, deadlines, Hypercorn's protocol
    requests       a request as handlers see it
    operations     a route of the table of all routes
    pages          the page, signing in, health
    markdown       Markdown texts as HTML that a page may insert
    control        the control plane's methods as routes
    conversations  a message, the end of its turn, and the replies
    messages       messages and replies as routes
    event_streams  what all responses of server-sent events share
    events         events of the agent as they happen
    openai         the API of OpenAI's chat, as far as front ends use it
    metrics        numbers for Prometheus
    hooks          webhooks of any service: a message or a task
    webhooks       webhooks of chat services: to the receiver of the channel
    openapi        description of the API, made of the table of operations
    app            the application: all routes behind the checks
    server         accepts connections
    actor          waits for the first client, then imports and runs the server
"""

from __future__ import annotations

from pegasus.web.actor import run_http
from pegasus.web.config import HttpConfig, WebServices
from pegasus.web.sessions import WebSessions


def render_markdown(text: str) -> str:
    """Return the HTML of a Markdown text; see `markdown`. The parser is imported at the first call, when somebody reads the page."""
    from pegasus.web.markdown import render_markdown as render

    return render(text)


__all__ = ["HttpConfig", "WebServices", "WebSessions", "render_markdown", "run_http"]
