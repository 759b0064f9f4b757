"""Settings of an embedded agent: of a file, a mapping, or finished ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from pegasus.host import Home
from pegasus.settings import Settings, SettingsSource, load_settings

Config: TypeAlias = "Settings | Mapping[str, Any] | str | os.PathLike[str] | None"
"""Settings as a program gives them.

* a path: that file, which must exist; it has the sections of pegasus.toml.
* a mapping: the same sections as dictionaries, `{"models": {"default": "openai/gpt-5.5"}}`.
* `Settings`: those, as they are.
* None: `pegasus.toml` in the home, where there is one; else the defaults.

For all but `Settings`, variables of the environment count as for the daemon: keys of providers, `PEGASUS__SECTION__KEY`, and those
that `${…}` names.
"""


def settings_of(config: Config, home: Home) -> Settings:
    """Return the settings, with a conversation for each chat. Blocks while it reads a file. Raises SettingsError."""
    if config is None:
        settings = load_settings(SettingsSource(home.config))
    elif isinstance(config, Settings):
        settings = config
    elif isinstance(config, Mapping):
        settings = load_settings(SettingsSource(table=config))
    else:
        settings = load_settings(SettingsSource(Path(config), required=True))
    return attrs.evolve(settings, agent=attrs.evolve(settings.agent, scope="chat"))
