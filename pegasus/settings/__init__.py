"""The settings: what a person may decide, in pegasus.toml, `PEGASUS__…` variables and --set.

Every key with its default and limits is in `model.py`; all mistakes are found at once and told by key path.
docs/settings.md is the page for people.
"""

from pegasus.settings.checks import is_loopback
from pegasus.settings.errors import SettingsError, SettingsProblem
from pegasus.settings.load import changed_keys, load_settings, reload_settings, secrets_of
from pegasus.settings.model import (
    MODEL_ROLES,
    PROVIDER_TYPES,
    AgentSettings,
    BudgetSettings,
    ChannelSettings,
    ChannelsSettings,
    GatewaySettings,
    HttpSettings,
    LogSettings,
    McpServerSettings,
    McpSettings,
    ModelSettings,
    PriceSettings,
    ProviderSettings,
    RouteSettings,
    RunSettings,
    SessionSettings,
    Settings,
    SettingsSource,
    TaskSettings,
    ToolSettings,
    WebSearchSettings,
)
from pegasus.settings.render import commented_file, effective

__all__ = [
    "MODEL_ROLES",
    "PROVIDER_TYPES",
    "AgentSettings",
    "BudgetSettings",
    "ChannelSettings",
    "ChannelsSettings",
    "GatewaySettings",
    "HttpSettings",
    "LogSettings",
    "McpServerSettings",
    "McpSettings",
    "ModelSettings",
    "PriceSettings",
    "ProviderSettings",
    "RouteSettings",
    "RunSettings",
    "SessionSettings",
    "Settings",
    "SettingsError",
    "SettingsProblem",
    "SettingsSource",
    "TaskSettings",
    "ToolSettings",
    "WebSearchSettings",
    "changed_keys",
    "commented_file",
    "effective",
    "is_loopback",
    "load_settings",
    "reload_settings",
    "secrets_of",
]
