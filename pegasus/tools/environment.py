"""The environment of commands: variables that programs need, and none of the daemon's own.

The rule is a list of what is passed on, not of what is kept back. A secret in a variable that
nobody thought of stays inside.

The names of secrets are guessed only for masking (`secrets_in_environment`). There a wrong guess
costs little: a value that is not secret is shown as `***`, or a secret with an unusual name is not
masked if a command finds it in some other way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

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
