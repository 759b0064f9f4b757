"""`ApiError`: a refusal with its HTTP status. Every error of the server has this form on the wire."""

from __future__ import annotations

from pegasus.messages import Json


class ApiError(Exception):
    """A request that is not carried out. The client gets `{"error": {"code", "message", "details"?}}`.

    Example: `raise ApiError(404, "not_found", "there is no task 'x'")`.
    """

    def __init__(self, status: int, code: str, message: str, details: Json = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status."""
        self.code = code
        """Word by which programs decide; the message is for people."""
        self.message = message
        self.details = details
        """Facts for programs; None: none."""

    @property
    def body(self) -> dict[str, Json]:
        """The JSON object of the response."""
        error: dict[str, Json] = {"code": self.code, "message": self.message}
        if self.details is not None:
            error["details"] = self.details
        return {"error": error}
