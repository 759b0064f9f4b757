"""HTTP: the web page, the API for programs, and the WebSocket on the same port (h11 on Trio, Starlette's routes).

The daemon imports this package at its start. Starlette and what needs it are imported when the first client connects (`actor`).
docs/http.md describes the API for people who write a client.

Other protocols for programs (MCP, A2A) are packages above this one. Each gives its routes as `Operation`s (`Doors`), so
that the checks of every request, its scope and the description are those of all routes. A door asks for a turn in three steps:
`message_of` makes the message, in a conversation that the token may use; `Conversations.converse` sends it, follows the turn and
returns its replies; `Conversations.acknowledge_turn` notes that the client has them. `WebServices.withdraw` stops a turn whose client
does not want it any more. All of them raise `ApiError`, or are called within `failures_as_errors`, for what the client is told.

Read the files in this order; each uses only those before it:

    deliveries  the webhook deliveries of the last day
    config      what the daemon gives the server
    visitors    the sender of a request, by `pegasus.access`, and the page that it comes from; a refusal with its status
    connection  one connection: socket, deadlines, h11
    requests    a request as handlers see it, and the forms of responses
    bodies      classes of the bodies of requests, and of answers that the server makes itself
    schemas     JSON Schema of attrs classes; imported, like the next three and `description`, when somebody asks for the description
    answers     answers of the control plane, as classes
    forms       the table of what each route answers
    operations  a route of the table of all routes
    description  the description of all routes (OpenAPI)
    markdown    Markdown texts as HTML that a page may insert
    routes      the handlers, and the tables of their routes
    app         the application: all routes behind the checks
    server      accepts connections
    actor       waits for the first client, then imports and runs the server
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.web.actor import run_http
from pegasus.web.config import HttpConfig, WebServices
from pegasus.web.deliveries import HookDeliveries

if TYPE_CHECKING:
    from pegasus.web.answers import TaskChangeAnswer, TasksAnswer
    from pegasus.web.app import Doors
    from pegasus.web.forms import Form
    from pegasus.web.operations import Operation
    from pegasus.web.requests import ApiRequest, EventStreamResponse, failures_as_errors, json_response
    from pegasus.web.routes import IDEMPOTENCY, LONGEST_WAIT, Conversations, TurnTranscript, message_of, new_message_id
    from pegasus.web.schemas import SchemaBook
    from pegasus.web.visitors import ApiError
else:
    # Names that other doors use: their modules are imported with the first door.
    __getattr__ = late_names(__name__)


def render_markdown(text: str) -> str:
    """Return the HTML of a Markdown text; see `markdown`. The parser is imported at the first call, when somebody reads the page."""
    from pegasus.web.markdown import render_markdown as render

    return render(text)


__all__ = [
    "IDEMPOTENCY",
    "LONGEST_WAIT",
    "ApiError",
    "ApiRequest",
    "Conversations",
    "Doors",
    "EventStreamResponse",
    "Form",
    "HookDeliveries",
    "HttpConfig",
    "Operation",
    "SchemaBook",
    "TaskChangeAnswer",
    "TasksAnswer",
    "TurnTranscript",
    "WebServices",
    "failures_as_errors",
    "json_response",
    "message_of",
    "new_message_id",
    "render_markdown",
    "run_http",
]
