"""The description of the HTTP API (OpenAPI 3.1), made of the operations and their forms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pegasus import __version__
from pegasus.messages import Json
from pegasus.web.forms import EXAMPLES, FILE, FORMS, STREAM, Form
from pegasus.web.operations import Operation
from pegasus.web.schemas import SchemaBook

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
"""A parameter of a path, with or without the kind that Starlette knows: `{id}`, `{path:path}`. OpenAPI has the
name only."""
_ERROR: Final[dict[str, Json]] = {
    "type": "object",
    "description": "A request that was not carried out. Programs decide by the code or the status; the message is for people.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "details": {}},
        }
    },
    "examples": [{"error": {"code": "not_found", "message": "there is no task 7"}}],
}
_MEANINGS: Final = {
    400: "A value is not allowed, or the body is no JSON object",
    401: "No token or session, or one that does not count",
    403: "The token lacks the scope, or a cookie came from a foreign page",
    404: "There is no such thing",
    405: "The path has not this method",
    406: "No kind of answer that the client accepts can be given",
    408: "The body did not come in time",
    409: "The state of the thing does not allow it",
    413: "The body is too large",
    415: "The body is of a kind that is not taken",
    421: "The Host header names another server",
    426: "Only a WebSocket is served here",
    429: "Too much waits; send it again after Retry-After",
    500: "A failure of the agent; its log has it",
    501: "This version cannot do it",
    503: "A part of the agent is being restarted, or the disk refuses",
    504: "The agent did not answer in time",
}
"""Statuses of errors."""
_FREE: Final = Form(media=(FILE,), errors=(400, 401, 403))
"""Form of a webhook of a chat service: that of the service."""


def describe_api(operations: Sequence[Operation]) -> dict[str, Json]:
    """Return the document for these operations. Those that share a path stand together below it, as OpenAPI wants it."""
    book = SchemaBook(EXAMPLES)
    paths: dict[str, dict[str, Json]] = {}
    for operation in operations:
        path = plain_path(operation.path)
        form = operation.form() if operation.form else FORMS.get(f"{operation.method} {operation.path}", _FREE)
        paths.setdefault(path, {})[operation.method.lower()] = _Description(operation, form, book).json()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pegasus",
            "version": __version__,
            "description": "The HTTP API of a Pegasus agent. Every error has the form of the schema Error.",
        },
        "paths": dict(paths),
        "components": {
            "schemas": {"Error": _ERROR, **book.found},
            "responses": {f"Error{status}": _error(meaning) for status, meaning in _MEANINGS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def plain_path(path: str) -> str:
    """Return a path without the kinds of its parameters."""
    return _PARAMETER.sub(r"{\1}", path)


def _error(description: str, schema: Json = None) -> Json:
    """Return the description of an error, of the schema Error unless told."""
    schema = schema or {"$ref": "#/components/schemas/Error"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


class _Description:
    """Description of one operation."""

    def __init__(self, operation: Operation, form: Form, book: SchemaBook) -> None:
        self._operation = operation
        self._form = form
        self._book = book

    def json(self) -> Json:
        """Return it."""
        operation, body = self._operation, self._operation.body or self._form.body
        described: dict[str, Json] = {
            "summary": operation.summary,
            "operationId": f"{operation.method.lower()}{re.sub('[^a-zA-Z0-9]+', '_', plain_path(operation.path))}",
            "responses": self._responses(),
        }
        if parameters := self._parameters():
            described["parameters"] = parameters
        if body is not None:
            content: Json = {operation.body_media: {"schema": self._book.schema(body)}}
            described["requestBody"] = {"required": operation.needs_body, "content": content}
        if self._needs_token:
            described["security"] = [{"token": []}]
            described["description"] = (
                f'Needs a token with the scope "{operation.scope}".' if operation.scope else "Needs a token."
            )
        return described

    @property
    def _needs_token(self) -> bool:
        """True unless it is open, or takes back a session that may have ended."""
        return self._operation.scope is not None and not self._operation.outlives_rights

    @property
    def _query(self) -> Mapping[str, Any]:
        return self._operation.query or self._form.query

    def _parameters(self) -> list[Json]:
        path: list[Json] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(self._operation.path)
        ]
        # Numbers count from 0, and have 18 digits at most; a sign is refused.
        numbers: dict[Any, Json] = {int: {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}}
        return path + [
            {"name": name, "in": "query", "schema": numbers.get(type, self._book.schema(type))}
            for name, type in self._query.items()
        ]

    def _responses(self) -> dict[str, Json]:
        form = self._form
        found = {form.status: self._success(form.answer, form.media)}
        found |= {status: self._success(answer, ()) for status, answer in form.others.items()}
        for status in sorted(self._error_statuses() - set(found)):
            found[status] = {"$ref": f"#/components/responses/Error{status}"}
            if form.error is not None:
                found[status] = _error(_MEANINGS[status], self._book.schema(form.error))
        named: dict[str, Json] = {str(status): found[status] for status in sorted(found)}
        return {**named, "default": _error("An error", form.error and self._book.schema(form.error))}

    def _success(self, answer: Any, media: tuple[str, ...]) -> Json:
        content: dict[str, Json] = {}
        # First, since generators of clients take the first that they know.
        if answer is not None:
            content["application/json"] = {"schema": self._book.schema(answer)}
        # Events of a stream are no text as a whole, and OpenAPI 3.1 has no word for them.
        content |= {kind: {} if kind == STREAM else {"schema": {"type": "string"}} for kind in media}
        return {"description": "Success", **({"content": content} if content else {})}

    def _error_statuses(self) -> set[int]:
        """Return the statuses of errors that the operation may have."""
        operation, form = self._operation, self._form
        found = {421, 500, *form.errors}
        has_body = bool(operation.body or form.body)
        if has_body or self._query:
            found |= {400}
        if has_body:
            found |= {408, 413}
        if self._needs_token:
            found |= {401, 403, 501, 503, 504}
        if "{" in operation.path:
            found |= {400, 404}
        return found
