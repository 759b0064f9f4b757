"""`Operation`: one route of the server.

The table of all operations is the source of Starlette's routes and of the description for programs (`description`). So a route cannot
be missing from that, and its scope is written in one place, where `app` checks it and the description shows it.

The class of a body is in the table, too: a body is checked by it, and the description is made of it (`bodies`). What operations answer
is said by `forms`, which is imported when somebody asks for the description. The handlers check values, with errors that say what is
allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from pegasus.web.requests import Handler

if TYPE_CHECKING:  # imported when somebody asks for the description
    from pegasus.web.forms import Form


@attrs.frozen(eq=False, repr=False)
class Operation:
    """A method on a path."""

    method: str
    """HTTP method in upper case."""
    path: str
    """Path with parameters in braces, as Starlette has it: "/api/tasks/{id}"."""
    handler: Handler
    """Called with the request when the checks are done. Its ApiErrors become error objects; any other exception is
    a 500."""
    summary: str
    """One line for people who read the API's description."""
    scope: str | None
    """Scope that a token must have; "": none, but a token or cookie is looked at; None: neither is."""
    query: Mapping[str, type] = attrs.field(factory=dict)
    """Names of the query that it understands, with their types."""
    body: type | None = None
    """Class of its body. One that does not fit is refused before the handler sees it."""
    needs_body: bool = True
    """The body may not be left out."""
    body_media: str = "application/json"
    """Type of the body."""
    form: Callable[[], Form] | None = None
    """Returns the form of its answers, for an operation of a package above this one; None: it stands in the table of `forms`."""
    challenge: str = ""
    """Path of the description of how to get a token (RFC 9728). A 401 names it where the settings name the server's public address."""
    outlives_rights: bool = False
    """The answer is given although the rights of its sender have ended meanwhile: a sign-out ends them itself."""
    allows_head: bool = False
    """HEAD is answered like GET, without a body."""
