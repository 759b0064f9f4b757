"""Errors of the library. `Agent.create` also raises HomeError, SettingsError, PersonaError, ModelConfigError and SandboxError."""

from __future__ import annotations


class AgentFailed(Exception):
    """The agent cannot start, or its root supervisor gave up. str() says why. What was accepted is on disk."""


class AgentClosed(Exception):
    """The block of `Agent.create` was left. A message that was accepted is worked on when an agent of this home runs again."""


class MessageRefused(Exception):
    """A message was not accepted; nothing of it was kept. str() is for a person.

    code: "invalid" (a field is wrong), "denied" (this person may not write), "too_large" (its files) or "overloaded" (send it again
    later).
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
