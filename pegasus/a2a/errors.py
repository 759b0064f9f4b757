"""Errors of the protocol, as both bindings show them.

The protocol names its own errors; each has a code of JSON-RPC, an HTTP status and a reason. What goes wrong elsewhere (an `ApiError`)
becomes the general error that fits its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from pegasus.messages import Json
from pegasus.web import ApiError

DOMAIN: Final = "a2a-protocol.org"
"""Domain of the reasons."""
_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST: Final = "type.googleapis.com/google.rpc.BadRequest"


@attrs.frozen
class ErrorKind:
    """A kind of error."""

    rpc_code: int
    """Code of JSON-RPC."""
    status: int
    """HTTP status of the other binding."""
    rpc_status: str
    """Name of that status in google.rpc.Status."""
    reason: str = ""
    """Reason in the details; "" for errors of JSON-RPC itself."""


TASK_NOT_FOUND: Final = ErrorKind(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND")
TASK_NOT_CANCELABLE: Final = ErrorKind(-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")
UNSUPPORTED_OPERATION: Final = ErrorKind(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")
CONTENT_TYPE_NOT_SUPPORTED: Final = ErrorKind(-32005, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")
"""For a body that is no JSON by its header: 415 is HTTP's own status for that."""
VERSION_NOT_SUPPORTED: Final = ErrorKind(-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")
PARSE_ERROR: Final = ErrorKind(-32700, 400, "INVALID_ARGUMENT")
INVALID_REQUEST: Final = ErrorKind(-32600, 400, "INVALID_ARGUMENT")
METHOD_NOT_FOUND: Final = ErrorKind(-32601, 404, "UNIMPLEMENTED")
INVALID_PARAMS: Final = ErrorKind(-32602, 400, "INVALID_ARGUMENT")
INTERNAL: Final = ErrorKind(-32603, 500, "INTERNAL")

_GENERAL: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        408: "DEADLINE_EXCEEDED",
        413: "RESOURCE_EXHAUSTED",
        429: "RESOURCE_EXHAUSTED",
        501: "UNIMPLEMENTED",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }
)
"""Names of the statuses of errors that are not the protocol's."""


class A2aError(Exception):
    """A request that is not carried out."""

    def __init__(self, kind: ErrorKind, message: str, *, field: str = "", **facts: str) -> None:
        """message: for people. field: the one of the request that is wrong. facts: for programs."""
        super().__init__(message)
        self.kind = kind
        self.message = message
        self._field = field
        self._facts = facts

    @classmethod
    def of(cls, error: ApiError) -> A2aError:
        """Return what a refusal of the server is here."""
        if error.status in (400, 413):
            kind = attrs.evolve(INVALID_PARAMS, status=error.status)
        else:
            kind = ErrorKind(INTERNAL.rpc_code, error.status, _GENERAL.get(error.status, "INTERNAL"))
        return cls(kind, error.message)

    @property
    def details(self) -> list[Json]:
        """Return what programs decide by."""
        found: list[Json] = []
        if self.kind.reason:
            facts: dict[str, Json] = dict(self._facts)
            found.append({"@type": _ERROR_INFO, "reason": self.kind.reason, "domain": DOMAIN, "metadata": facts})
        if self._field:
            violation: dict[str, Json] = {"field": self._field, "description": self.message}
            found.append({"@type": _BAD_REQUEST, "fieldViolations": [violation]})
        return found

    def as_rpc(self) -> dict[str, Json]:
        """Return the error object of JSON-RPC."""
        error: dict[str, Json] = {"code": self.kind.rpc_code, "message": self.message}
        return {**error, "data": self.details} if self.details else error

    def as_status(self) -> dict[str, Json]:
        """Return the body of an HTTP response, a google.rpc.Status."""
        kind = self.kind
        error: dict[str, Json] = {"code": kind.status, "status": kind.rpc_status, "message": self.message}
        return {"error": {**error, "details": self.details}}


def bad_params(field: str, problem: str) -> A2aError:
    """Return the error for a wrong field of a request."""
    return A2aError(INVALID_PARAMS, f"{field}: {problem}" if field else problem, field=field or "params")


def no_such_task(task_id: str) -> A2aError:
    """Return the error for a task that does not exist, or is another client's: which of the two is nobody's business."""
    return A2aError(TASK_NOT_FOUND, "there is no such task", taskId=task_id[:200])
