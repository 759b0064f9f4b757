"""The environment of commands: the part of the daemon's that they get, and what keeps them from asking."""

from __future__ import annotations

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

TERMINAL_TYPE: Final = "xterm"
"""TERM of commands that have a terminal; its control sequences are known to `pegasus.sandbox.terminal_text`."""
_FALLBACK_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""PATH of commands if the daemon has none, as under some service managers."""


def command_environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command.

    environ: the daemon's own. extra: variables that the task or the call has set; they win over all
    others.
    """
    return {"PATH": _FALLBACK_PATH, **passed_on(environ), **NON_INTERACTIVE, **extra}


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the daemon's environment that commands get."""
    # A list of what is allowed. A list of what is secret would miss the next name that somebody invents.
    return {name: value for name, value in environ.items() if name in PASSED_ON or name.startswith("LC_")}
