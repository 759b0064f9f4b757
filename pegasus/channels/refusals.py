"""Refusals: everything that a service may say instead of yes.

Each kind is handled in one place, `ServiceAdapter`; the services only translate into them.
"""

from __future__ import annotations

from pegasus.channels.adapter import ReplyRefused

__all__ = ["CredentialsRefused", "NotKept", "RateLimited", "ReplyRefused", "ServiceDown"]


class ServiceDown(Exception):
    """The service gave no answer that counts: no connection, a timeout, a 5xx. Tried again for ever. str() is the reason."""

    def __init__(self, reason: str, *, may_have_acted: bool = True, says_failed: bool = False) -> None:
        super().__init__(reason)
        self.may_have_acted = may_have_acted
        """The service may have done what it was asked for. False if the request never got there, or was answered with a failure."""
        self.says_failed = says_failed
        """It was answered with a failure. A server in front of the service may say so, though it is done."""


class RateLimited(Exception):
    """The service wants to be left alone for some seconds (429). Example: `RateLimited(3.0)`."""

    def __init__(self, seconds: float, *, for_all: bool = False) -> None:
        super().__init__(f"rate limit: {seconds:g} s")
        self.seconds = seconds
        self.for_all = for_all
        """The limit is the one of the whole account, and not of a conversation."""


class CredentialsRefused(Exception):
    """The service does not take the token any more. The channel is parked. str() is the reason, without the token."""


class NotKept(Exception):
    """A message of somebody may not be on disk: the disk refuses, or too many messages wait. The service is to send it again."""
