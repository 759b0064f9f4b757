"""The control plane's methods about settings: what is in force, and changing a key of the file.

`config.reload` is that of the `Reloader`, by which a change is made as well: what `pegasus config set` would refuse is refused here,
with the same sentence, and the file keeps its comments and its order.

Not every key can be changed from afar. A browser that somebody else has got hold of must not open the walls, let people in, or send
keys to another address. Nor is a key changed whose mistake would show at the next start only, when there is no page to mend it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio

from pegasus.app.reload import MISTAKES
from pegasus.formatting import quote
from pegasus.gateway import BadParams, Caller, Method, NotAllowed, Params, require_text
from pegasus.host import HomeError
from pegasus.messages import Json
from pegasus.settings import (
    EditError,
    Key,
    LiveSettings,
    ReloadResult,
    Settings,
    SettingsError,
    effective_view,
    find_key,
    load_settings,
    parse_value,
    set_key,
    shown_value,
    unset_key,
)

OPEN_SECTIONS: Final = (
    "agent.",
    "budget.",
    "limits.",
    "log.",
    "media.",
    "models.",
    "prices.",
    "retention.",
    "run.",
    "schedule.",
    "session.",
    "tasks.",
    "tools.",
)
"""Beginnings of the keys that may be changed. All others say who may do what, what is started, or where keys are sent."""
CLOSED_KEYS: Final = frozenset(
    {
        "agent.owners",
        "agent.persona",
        "tools.allowed_hosts",
        "tools.allowed_paths",
        "tools.web_hosts",
        "tools.web_search.base_url",
    }
)
"""Keys among them that do so as well, or that name a file whose mistakes would show what is in it."""
LONGEST_VALUE: Final = 10_000
"""Characters of a value."""


@attrs.frozen(eq=False, repr=False)
class SettingsMethods:
    """Settings: `config.show`, `config.set`.

    Example::

        methods = SettingsMethods(in_force, reloader.edit)
        await methods.set(caller, {"path": ["log", "level"], "was": '"info"', "value": "debug"})
    """

    in_force: LiveSettings
    """The settings."""
    change_settings: Callable[[Callable[[str], str]], Awaitable[ReloadResult]]
    """Changes the text of the settings file, and puts it in force (`Reloader.edit`)."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"config.show": self.show, "config.set": self.set}

    async def show(self, caller: Caller, params: Params) -> Json:
        """Return the settings in force: for each table its keys with value (as TOML), origin and meaning; secrets are masked.

        `mayEdit`: the caller may change those without `fixed`, which says why a key cannot be changed here.
        """
        await trio.lowlevel.checkpoint()
        may_edit = caller.grant.proves_owner(caller.type)
        return {"sections": effective_view(self.in_force.now, self._reason), "mayEdit": may_edit}

    async def set(self, caller: Caller, params: Params) -> Json:
        """Change the key `path` of the settings file to the text `value`, and put it in force; null: remove it, its default counts.

        `was`: the value that the caller has seen, as `config.show` shows it. The answer has the new one, and the keys that changed
        now, and that will after a restart: what was changed in the file by hand is put in force as well.
        """
        if not caller.grant.proves_owner(caller.type):
            raise NotAllowed("only the owner changes settings, on the page or as a program with the home's token")
        path, was, text = _path(params), require_text(params, "was"), params.get("value")
        key, name = find_key(path), ".".join(path)
        if not isinstance(key, Key):
            raise BadParams(f"path: there is no key {quote(name, 80)}")
        if reason := self._reason(name, key):
            raise BadParams(f"{name}: {reason}")
        if text is not None and (not isinstance(text, str) or len(text) > LONGEST_VALUE):
            raise BadParams(f"value: found {quote(text, 40)}, allowed: a text of at most {LONGEST_VALUE:,} characters")
        try:
            done = await self.change_settings(partial(self._changed, path, key, was, text))
        except (EditError, HomeError, *MISTAKES) as error:
            raise BadParams(str(error)) from None
        now = shown_value(self.in_force.now, path)
        return {"value": now, "changed": list(done.changed), "afterRestart": list(done.after_restart)}

    def _changed(self, path: Sequence[str], key: Key, was: str, text: str | None, content: str) -> str:
        """Return the text of the settings file with another value of a key. Raises EditError."""
        before = _load_or_none(self.in_force.now, content)
        if before is not None and (now := shown_value(before, path)) != was:
            raise EditError(f"{'.'.join(path)} was changed meanwhile: it is {now} in the file. Nothing was written")
        if _has_variable(_raw(tomllib.loads(content), path)) or _has_variable(text):
            # Whoever could name a variable would read it in the value that is in force.
            raise EditError(f"{'.'.join(path)}: a variable ${{…}} is set in the file, or with `pegasus config set`")
        if text is None:
            return unset_key(content, path)
        # A text is meant as it is typed, also if it looks like TOML.
        return set_key(content, path, text if key.type is str else parse_value(path, text))

    def _reason(self, name: str, key: Key) -> str:
        """Return why a key cannot be changed here, "" if it can."""
        origin, file = self.in_force.now.origins.get(name), self.in_force.now.source.file
        if key.secret:
            return "a secret: set it with `pegasus config set`, which does not show it"
        if not name.startswith(OPEN_SECTIONS) or name in CLOSED_KEYS:
            return "it says who may do what, or where something is: change it in the file"
        if not self.in_force.follows(name):
            return "it needs a restart: change it in the file"
        if origin is not None and origin != str(file):
            return f"{origin} sets it, and goes before the file"
        return "" if file is not None else "this agent has no settings file"


def _path(params: Params) -> tuple[str, ...]:
    """Return the names of the sections around a key, and its own. Raises BadParams."""
    path = params.get("path")
    if not isinstance(path, list) or not path or not all(isinstance(name, str) and name for name in path):
        raise BadParams(f"path: found {quote(path, 80)}, allowed: a list of names, as config.show has them")
    return tuple(map(str, path))


def _raw(table: Any, path: Sequence[str]) -> Any:
    """Return what the file has under a path, None if there is nothing."""
    for name in path:
        table = table.get(name) if isinstance(table, dict) else None
    return table


def _has_variable(value: Any) -> bool:
    """Return whether a value of the file names a variable of the environment, or text that looks like it."""
    if isinstance(value, dict):
        return any(map(_has_variable, value.values()))
    return any(map(_has_variable, value)) if isinstance(value, list) else isinstance(value, str) and "${" in value


def _load_or_none(now: Settings, content: str) -> Settings | None:
    """Return what a text of the settings file says, None if it has mistakes, which the change may mend."""
    try:
        return load_settings(now.source, content=content)
    except SettingsError:
        return None
