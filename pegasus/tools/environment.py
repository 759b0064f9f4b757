"""The environment of commands: variables that programs need, and none of the daemon's own; get_env and set_env.

The rule is a list of what is passed on, not of what is kept back. A secret in a variable that
nobody thought of stays inside.

The names of secrets are guessed only for masking (`secrets_in_environment`). There a wrong guess
costs little: a value that is not secret is shown as `***`, or a secret with an unusual name is not
masked if a command finds it in some other way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters

_NAMES: Final = (
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TMP TEMP"
    " XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR"
    " VIRTUAL_ENV CONDA_PREFIX PYENV_ROOT NVM_DIR JAVA_HOME GOPATH GOROOT CARGO_HOME RUSTUP_HOME"
    " LD_LIBRARY_PATH DYLD_LIBRARY_PATH"
    " SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS"
)
PASSED_ON: Final = frozenset(_NAMES.split())
"""Variables of the daemon that commands receive, besides those that begin with LC_."""

NON_INTERACTIVE: Final = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Variables that keep programs from paging and asking: there is no terminal."""

_FALLBACK_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""PATH of commands if the daemon has none, as under some service managers."""
_SECRET_NAME: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
"""Endings of names whose values are treated as secrets."""


def command_environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command.

    environ: the daemon's own. extra: variables that the task or the call has set; they win over all
    others.
    """
    kept = {name: value for name, value in environ.items() if name in PASSED_ON or name.startswith("LC_")}
    return {"PATH": _FALLBACK_PATH, **kept, **NON_INTERACTIVE, **extra}


def secrets_in_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that are named like secrets (`…KEY`, `…TOKEN`, `…PASSWORD` and similar).

    Commands do not receive them, but can still find them (another process of the same user, a file
    that was sourced), so the executor masks them in results.
    """
    return tuple(value for name, value in environ.items() if value and _SECRET_NAME.search(name))


# ------------------------------------------------------------------ get_env and set_env

_GET_ENV: Final = ToolSpec(
    "get_env",
    "An environment variable, as commands of this task see it; null if there is none.",
    parameters({"key": {"type": "string"}}, "key"),
)
_SET_ENV: Final = ToolSpec(
    "set_env",
    "Set an environment variable for the commands that this task runs from now on.",
    parameters({"key": {"type": "string"}, "value": {"type": "string"}}, "key", "value"),
)
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
"""Names that shells accept."""
MAX_VALUE: Final = 32_768
"""Characters of a variable that a task sets. The system limits the environment of a command as a whole."""
MAX_VARIABLES: Final = 100
"""Variables that one task may set. They are kept in memory and passed to every command."""


def environment_tools(environ: Mapping[str, str] = os.environ) -> tuple[Tool, ...]:
    """Return get_env and set_env. environ: the daemon's own environment.

    Both variable tools work on what commands get (`command_environment`): the few variables of the
    daemon that are passed on, and those that the task has set. So no key, token or password of the
    daemon can be read, whatever its name, and nothing that a task sets reaches the daemon or
    another task.

    The variables of a task are in the context of its calls and end with the task; they are not stored.
    """

    async def get_env(arguments: Any, context: ToolContext) -> Json:
        """Read a variable. For one of the daemon's own, the note says why it is not shown."""
        key = arguments["key"]
        value = command_environment(environ, context.env).get(key)
        result: dict[str, Json] = {"key": key, "value": value}
        if value is None and key in environ:
            result["note"] = "it is set for the agent itself, but not handed on to tools, since it may be a secret"
        return result

    async def set_env(arguments: Any, context: ToolContext) -> Json:
        """Set a variable in the mapping that all calls of the task share."""
        key, value = arguments["key"], arguments["value"]
        _check_variable(key, value, context.env)
        previous = command_environment(environ, context.env).get(key)
        context.env[key] = value
        return {"key": key, "previous": previous, "current": value}

    return (
        Tool(_GET_ENV, get_env, "system", Effect.PURE),
        Tool(_SET_ENV, set_env, "system", Effect.IDEMPOTENT),
    )


def _check_variable(key: str, value: str, present: Mapping[str, str]) -> None:
    """Raise ToolError unless the variable can be passed to a command and the task may set another one."""
    if not _VARIABLE_NAME.fullmatch(key):
        raise ToolError(
            f"{key!r} is not the name of a variable; allowed: letters, digits and _, not beginning with a digit"
        )
    if "\0" in value or len(value) > MAX_VALUE:
        raise ToolError(f"the value must have at most {MAX_VALUE:,} characters and no NUL")
    if key not in present and len(present) >= MAX_VARIABLES:
        raise ToolError(f"{MAX_VARIABLES} variables are set already")
