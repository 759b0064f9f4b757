"""The settings: what a person may decide, in pegasus.toml, `PEGASUS__…` variables and --set.

Every key with its default and limits is in `model.py`; all mistakes are found at once and told by key path.
docs/settings.md is the page for people.
"""

from pegasus.settings.checks import is_loopback
from pegasus.settings.errors import Problem, SettingsError
from pegasus.settings.load import changed_keys, load_settings, reload_settings, secrets_of
from pegasus.settings.model import (
    MODEL_ROLES,
    PROVIDER_TYPES,
    Agent,
    Budget,
    Channel,
    Channels,
    Gateway,
    Http,
    Log,
    Mcp,
    McpServer,
    Models,
    Price,
    Provider,
    Route,
    Run,
    Session,
    Settings,
    Source,
    Tasks,
    Tools,
    WebSearch,
)
from pegasus.settings.render import commented_file, effective

__all__ = [
    "MODEL_ROLES",
    "PROVIDER_TYPES",
    "Agent",
    "Budget",
    "Channel",
    "Channels",
    "Gateway",
    "Http",
    "Log",
    "Mcp",
    "McpServer",
    "Models",
    "Price",
    "Problem",
    "Provider",
    "Route",
    "Run",
    "Session",
    "Settings",
    "SettingsError",
    "Source",
    "Tasks",
    "Tools",
    "WebSearch",
    "changed_keys",
    "commented_file",
    "effective",
    "is_loopback",
    "load_settings",
    "reload_settings",
    "secrets_of",
]
