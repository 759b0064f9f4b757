"""Parameters of the methods of the Agent Client Protocol, version 1, as values, as far as they matter here.

Names and shapes are those of the protocol's schema. Fields that it has and that are not here are ignored, as later ones will be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import attrs

from pegasus.acp.link import INVALID_PARAMS, RpcError
from pegasus.messages import Json
from pegasus.wire import WireError, from_wire

T = TypeVar("T")

PROTOCOL: Final = 1
"""The version of the protocol that is spoken, the newest that is not a draft."""


@attrs.frozen
class FileCapabilities:
    """Methods of the editor for files."""

    read_text_file: bool = False
    write_text_file: bool = False


@attrs.frozen
class EditorCapabilities:
    """Methods that the editor has for the agent."""

    fs: FileCapabilities = FileCapabilities()
    terminal: bool = False


@attrs.frozen
class Initialize:
    """Params of `initialize`."""

    protocol_version: int
    client_capabilities: EditorCapabilities = EditorCapabilities()


@attrs.frozen
class NamedServer:
    """An MCP server that the editor passes on; its name is all that is used."""

    name: str


@attrs.frozen
class OpenSession:
    """Params of `session/new`, `session/load` and `session/resume`."""

    cwd: str
    session_id: str = ""
    mcp_servers: tuple[NamedServer, ...] = ()
    additional_directories: tuple[str, ...] = ()


@attrs.frozen
class ListSessions:
    """Params of `session/list`."""

    cwd: str | None = None
    cursor: str | None = None


@attrs.frozen
class OfSession:
    """Params of `session/cancel` and `session/close`."""

    session_id: str


@attrs.frozen
class Prompt:
    """Params of `session/prompt`."""

    session_id: str
    prompt: tuple[Mapping[str, Json], ...]


@attrs.frozen
class SetMode:
    """Params of `session/set_mode`."""

    session_id: str
    mode_id: str


@attrs.frozen
class SetOption:
    """Params of `session/set_config_option`."""

    session_id: str
    config_id: str
    value: str


def read_params(params: Mapping[str, Any], cls: type[T]) -> T:
    """Return the parameters as a value of this class; null is the same as an absent field. Raises RpcError."""
    try:
        return from_wire(_without_null(params), cls, is_foreign=True)
    except WireError as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None


def _without_null(value: Any, levels: int = 4) -> Any:
    """Return an object without its fields that are null, also in the objects that it holds."""
    if isinstance(value, Mapping) and levels:
        return {key: _without_null(each, levels - 1) for key, each in value.items() if each is not None}
    return value
