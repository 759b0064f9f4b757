"""`Operation`: one route of the server. The table of all operations is the source of the routes and of openapi.json."""

from __future__ import annotations

import attrs

from pegasus.web.requests import Handler


@attrs.frozen(eq=False, repr=False)
class Operation:
    """A method on a path.

    Example::

        Operation("GET", "/api/status", show_status, "What the agent is doing", scope="read")
    """

    method: str
    path: str
    """Path with parameters in braces, as Starlette has it: "/api/tasks/{id}"."""
    handler: Handler
    summary: str
    """One line for people who read the API's description."""
    scope: str | None
    """Scope that a token must have; "": none, but a token or cookie is looked at; None: neither is."""
    query: tuple[str, ...] = ()
    """Names of the query that it understands."""
    fields: tuple[str, ...] = ()
    """Fields of its JSON body."""
    allows_head: bool = False
    """HEAD is answered like GET, without a body."""
