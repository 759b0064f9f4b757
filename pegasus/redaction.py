r"""Removal of secrets from text that leaves the process or reaches a model: logs, results of tools, errors of providers.

Two kinds of secrets are replaced by `***`:

1. *Known* ones: keys of the settings, tokens of the home, environment variables with telling names. They are found in every form
   in which they usually appear: plain, escaped by JSON or repr, in an address, in base64.
2. Those of a *common format*, whoever they belong to (`pegasus.secret_formats`): a key in a file that a task reads was never told
   to Pegasus.

Text is searched as it is written down, after JSON has escaped it: then no way of putting fields together leaves a secret in one.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pegasus.formatting import MASK
from pegasus.secret_formats import redact_formats
from pegasus.wire import decode_object

# ------------------------------------------------------------------ known secrets

_SECRET_NAME: Final = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(^|_|PG)PASS|SQL_PWD)$", re.IGNORECASE
)
"""Endings of names whose values are treated as secrets."""


def secrets_in_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that are named like secrets (`…KEY`, `…TOKEN`, `…PASSWORD` and similar).

    Commands do not receive them, but can still find them (another process of the same user, a file
    that was sourced), so they are masked in results.
    """
    return tuple(value for name, value in environ.items() if value and _SECRET_NAME.search(name))


class Redactor:
    """Replacement of known secrets, and of everything that has the format of one, by `***`.

    Example::

        Redactor(["s3cret-12345"]).apply("key=s3cret-12345")  # "key=***"
    """

    def __init__(self, secrets: Iterable[str] = (), *, shortest: int = 6, mask: str = MASK) -> None:
        """Collect the forms in which each secret may appear.

        secrets: the known ones. shortest: characters from which a known secret counts; shorter ones would take words
        apart. mask: what takes the place of a secret.
        """
        self._mask = mask
        forms = {form for secret in secrets if len(secret) >= shortest for form in _forms_of(secret)}
        # The longest first: a secret that contains another one must not be left with its remainder readable.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    def apply(self, text: str) -> str:
        """Return the text without secrets."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, self._mask)
        return redact_formats(text, self._mask)


class KnownSecrets:
    """The secrets of an installation as they are known at the moment. All who remove secrets from texts share one such object.

    Example::

        secrets = KnownSecrets([token], SecretFolder(home.path / "mcp"))
        secrets.add(secrets_of(settings))
        secrets.redact(text)  # the text without any of them
    """

    def __init__(self, secrets: Iterable[str] = (), folder: SecretFolder | None = None) -> None:
        """Know these secrets. folder: has further ones, which may change at any time."""
        self._own = tuple(secrets)
        self._folder = folder
        self._known = self._own
        """The secrets that `_redactor` knows."""
        self._redactor = Redactor(self._known)

    def all(self) -> tuple[str, ...]:
        """Return the secrets that are known now."""
        return self._own if self._folder is None else (*self._own, *self._folder.read())

    def add(self, secrets: Iterable[str]) -> None:
        """Take in further secrets. Those from before stay, since they may still be valid."""
        self._own = tuple(dict.fromkeys((*self._own, *secrets)))

    def redact(self, text: str) -> str:
        """Return the text without the secrets of this moment, and without anything that has the format of one."""
        known = self.all()
        if known != self._known:
            self._known, self._redactor = known, Redactor(known)
        return self._redactor.apply(text)


def _forms_of(secret: str) -> set[str]:
    """Return a secret as it is, and escaped by JSON, by repr, in an address and in base64 (HTTP's Basic)."""
    escaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    encoded = secret.encode("utf-8", "surrogateescape")
    return {
        secret,
        escaped,
        json.dumps(escaped, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(encoded, safe=""),
        base64.b64encode(encoded).decode().rstrip("="),
    }


# ------------------------------------------------------------------ secrets in files

_SECRET_KEY: Final = re.compile("token|secret|verifier", re.IGNORECASE)
"""Part of the keys of a JSON file under which secrets stand."""
_SHORTEST_SECRET: Final = 8
"""Characters of a text in such a file that can be a secret. `token_type` has fewer."""


class SecretFolder:
    """The secrets in the JSON files of a folder, such as the tokens of MCP servers: every text under a key that names a secret.

    Example: `SecretFolder(home.path / "mcp").read()` returns ("eyJ0eXAi…",). A file is read again when it has changed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {}
        """Content of each file, and its state at that time, by its name."""

    def read(self) -> tuple[str, ...]:
        """Return the secrets. Looks at the folder each time, which takes some microseconds; files are small.

        A file that is just being replaced is read as it was or as it will be, since the replacement is a rename. What cannot be read
        at the moment, such as for want of descriptors, has the secrets that were known before.
        """
        try:
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(".json")]
        except FileNotFoundError:
            names = []
        except OSError:
            names = list(self._known)
        found = {name: self._read_file(name) for name in names}
        self._known = {name: known for name, known in found.items() if known is not None}
        return tuple(secret for _, secrets in self._known.values() for secret in secrets)

    def _read_file(self, name: str) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
        """Return the state of a file and its secrets; what was known before if it cannot be read, None if there is no such file."""
        path, known = self._folder / name, self._known.get(name)
        try:
            status = os.stat(path, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                return None
            # The inode differs after each replacement, even where size and time are the same.
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            if known is not None and known[0] == state:
                return known
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError:
            return known
        try:
            return state, tuple(sorted(_secrets_in(decode_object(content))))
        except ValueError:
            return state, ()


def _secrets_in(facts: Mapping[str, Any]) -> set[str]:
    """Return every text under a key that names a secret. Addresses, such as that of the token endpoint, are none."""
    found: set[str] = set()
    for key, value in facts.items():
        if isinstance(value, Mapping):
            found |= _secrets_in(value)
        elif (
            isinstance(value, str) and len(value) >= _SHORTEST_SECRET and "://" not in value and _SECRET_KEY.search(key)
        ):
            found.add(value)
    return found
