"""`Operation`: one route of the server, and `GET /openapi.json`, which describes all of them.

The table of all operations is the source of both: Starlette's routes are made of it, and so is the description.
So a route cannot be missing from the description, and its scope is written in one place, where `app` checks it
and the description shows it.

The description says which parameters and fields there are, and not of which types they are: handlers check
that, with errors that say what is allowed. docs/http.md has the forms of bodies and responses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs
from starlette.responses import Response

from pegasus import __version__
from pegasus.messages import Json
from pegasus.web.requests import ApiRequest, Handler, json_response

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
"""A parameter of a path, with or without the kind that Starlette knows: `{id}`, `{path:path}`. OpenAPI has the
name only."""
_ERROR: Final[dict[str, Json]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "details": {}},
        }
    },
}
"""JSON Schema of the object that every error has."""


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
    query: tuple[str, ...] = ()
    """Names of the query that it understands."""
    fields: tuple[str, ...] = ()
    """Fields of its JSON body."""
    outlives_rights: bool = False
    """The answer is given although the rights of its sender have ended meanwhile: a sign-out ends them itself."""
    allows_head: bool = False
    """HEAD is answered like GET, without a body."""


def _describe_api(operations: Sequence[Operation]) -> dict[str, Json]:
    """Return the document (OpenAPI 3.1) for these operations.

    Operations that share a path stand together below it, as OpenAPI wants it.
    """
    paths: dict[str, dict[str, Json]] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pegasus",
            "version": __version__,
            "description": "The HTTP API of a Pegasus agent. Every error has the form of the schema Error.",
        },
        "paths": dict(paths),
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation) -> Json:
    """Return the description of an operation. Its parameters are texts, since numbers are checked by `ApiRequest.number`."""
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(operation.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": {"type": "string"}} for name in operation.query]
    error: Json = {
        "description": "An error",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    described: dict[str, Json] = {
        "summary": operation.summary,
        "operationId": f"{operation.method.lower()}{re.sub('[^a-zA-Z0-9]+', '_', operation.path)}",
        "responses": {"2XX": {"description": "Success"}, "default": error},
    }
    if parameters:
        described["parameters"] = parameters
    if operation.fields:
        schema: Json = {"type": "object", "properties": {name: {} for name in operation.fields}}
        described["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if operation.scope is not None:
        described["security"] = [{"token": []}]
        described["description"] = (
            f'Needs a token with the scope "{operation.scope}".' if operation.scope else "Needs a token."
        )
    return described


def openapi_operation(operations: Sequence[Operation]) -> Operation:
    """Return the operation that describes these, and itself."""

    async def show(request: ApiRequest) -> Response:
        """Return the description, which was made once."""
        return json_response(document)

    # `show` reads the document when it is called, so the operation can be part of what it describes.
    operation = Operation("GET", "/openapi.json", show, "This description", None)
    document = _describe_api([*operations, operation])
    return operation
