"""The environment of what the agent runs: what programs need, and nothing of the daemon's own.

The rule is a list of what goes along, not of what does not: a secret that nobody thought of stays out.
"""

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
HANDED_ON: Final = frozenset(_NAMES.split())
"""Beside them, everything that begins with LC_."""

SET: Final = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Nobody sits at a terminal: programs should neither page nor ask."""

_FALLBACK_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


def command_environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """What a command gets. environ: the daemon's own; extra: what the call asks for, which wins."""
    kept = {name: value for name, value in environ.items() if name in HANDED_ON or name.startswith("LC_")}
    return {"PATH": _FALLBACK_PATH, **kept, **SET, **extra}
