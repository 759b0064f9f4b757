"""Formats of the test provider: which one is spoken at a path, and how a request of it is read and an answer written.

Each format has a file of its own (`anthropic`, `chat`, `responses`, `ollama`).

All formats are read into the same turns (`TurnBuilder`), and written from the same `ProviderAnswer`. So a script need not
know which one a client speaks, and a test can run with each. Which format it is depends on the path alone, as at the
services. Ollama's answers are not made here, as they depend on the model that is loaded (`serving`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pegasus.testing.provider.answers import NewId, ProviderAnswer
from pegasus.testing.provider.anthropic import message_events, read_messages
from pegasus.testing.provider.chat import chunks, read_chat
from pegasus.testing.provider.dialects import PLAIN, Dialect
from pegasus.testing.provider.ollama import read_ollama
from pegasus.testing.provider.requests import Invalid, ProviderRequest, require
from pegasus.testing.provider.responses import read_responses, response_events


def parse(path: str, headers: Mapping[str, str], body: bytes, n: int = 0, dialect: Dialect = PLAIN) -> ProviderRequest:
    """Read and check a request. Raises Invalid. headers: names in lower case.

    path: the URL's, which tells the format. n: number of the request. dialect: of Chat Completions.
    JSON's constants `NaN` and `Infinity`, which Python would accept, are refused.
    """
    if "application/json" not in headers.get("content-type", ""):
        raise Invalid("content-type must be application/json")
    try:
        raw = json.loads(body, parse_constant=_no_constant)
    except ValueError as error:
        raise Invalid(f"the body is not valid JSON: {error}") from error
    require(isinstance(raw, dict), "the body must be an object")
    # Additions of a service are taken out before its request is read as Chat Completions.
    form, read = _format(path)
    turns, system, tools = read(dialect.plain(raw) if form == "openai" else raw)
    stream = raw.get("stream", form == "ollama") is True
    return ProviderRequest(form, path, headers, body, raw, turns, system, tools, stream, n=n)


def _format(path: str) -> tuple[str, Callable[[dict[str, Any]], Any]]:
    """Return the name of the format that is spoken at a path, and the function that reads its requests."""
    if path == "/api/chat":
        return "ollama", read_ollama
    if path.endswith("/responses"):
        return "responses", read_responses
    return ("anthropic", read_messages) if path.endswith("/messages") else ("openai", read_chat)


def _no_constant(name: str) -> None:
    """Refuse NaN and Infinity, which are no JSON."""
    raise Invalid(f"the body is not valid JSON: {name}")


def events(
    answer: ProviderAnswer, form: str, new_id: NewId, *, usage: bool = True, dialect: Dialect = PLAIN
) -> list[bytes]:
    """Return the stream, event by event. form: "anthropic", "openai" or "responses"; `answer_lines` writes Ollama's.

    usage: send the usage, in OpenAI's format.

    The server may stop, pause or hang between any two of them, and a fault is simply a position in that list.
    """
    if form == "responses":
        return response_events(answer, new_id)
    return (
        message_events(answer, new_id) if form == "anthropic" else chunks(answer, new_id, usage=usage, dialect=dialect)
    )
