"""Settings: what a person may decide, in pegasus.toml, in `PEGASUS__…` variables and with --set.

`sections` lists every key with its default and limits, by means of `keys`; `channel_sections` and `tool_sections` have those of
channels and of tools. `sources` reads the places that settings come
from, `load` checks and merges them, `checks` looks at several keys together, `render` writes TOML, `edit` changes a key in a file. All
mistakes are found at once, and each names its source, its key path, the value that was found and the values that are allowed.
docs/user/settings.md is the page for people.

A `Settings` object is immutable. A reload makes a new one (`load_settings` with the `source` of the old one), which takes the
place of the old one as a whole, so that no reader ever sees one key of the new file beside another one of the old. `in_force` has the
handle for that. What a package needs it is given as a handle of its section (`LiveValue[AgentSettings]`), not as the whole.

A key is declared once, as a field of a section, with its default, its limits and its words for people. The check of a value, the
file of `pegasus init`, `config show`, `config keys` and the suggestions for misspelt keys are all made from that declaration, so
a new key is one line in a section, one line in docs/user/settings.md, and the code that reads it.

Example::

    in_force = SettingsInForce(load_settings(SettingsSource(Path("pegasus.toml"))))
    agent = in_force.follow(lambda settings: settings.agent, "agent.")
    agent.now.max_thoughts  # 20, or what the file says
    taken_up = await in_force.replace(load_settings(in_force.now.source))
    taken_up.after_restart  # ("gateway.port",) if that has changed, too
"""

from pegasus.settings.channel_sections import (
    SERVICE_SECTIONS,
    ChannelSettings,
    SlackSettings,
    SmsSettings,
    TelegramSettings,
)
from pegasus.settings.edit import EditError, find_key, parse_key, parse_value, set_key, settings_text, unset_key
from pegasus.settings.in_force import RESTART_KEYS, SANDBOX_KEYS, LiveSettings, LiveValue, ReloadResult
from pegasus.settings.keys import Key, SettingsError, walk
from pegasus.settings.load import load_settings, located, secrets_of
from pegasus.settings.render import commented_file, effective, effective_view, shown_value
from pegasus.settings.sections import (
    MODEL_ROLES,
    PROVIDER_TYPES,
    SERVICE_TYPES,
    A2aSettings,
    AgentSettings,
    BudgetSettings,
    HookSettings,
    HttpSettings,
    LimitSettings,
    MediaSettings,
    ModelOptionSettings,
    ModelSettings,
    NodeSettings,
    PriceSettings,
    ProviderSettings,
    PushSettings,
    RetentionSettings,
    RouteSettings,
    SessionSettings,
    Settings,
    SettingsSource,
    StorageSettings,
    TaskSettings,
    TelemetrySettings,
)
from pegasus.settings.tool_sections import (
    McpServerSettings,
    PolicySettings,
    RemoteAgentSettings,
    SandboxSettings,
    ScheduleSettings,
    ToolSettings,
    WebSearchSettings,
)

__all__ = [
    "MODEL_ROLES",
    "PROVIDER_TYPES",
    "RESTART_KEYS",
    "SANDBOX_KEYS",
    "SERVICE_SECTIONS",
    "SERVICE_TYPES",
    "A2aSettings",
    "AgentSettings",
    "BudgetSettings",
    "ChannelSettings",
    "EditError",
    "HookSettings",
    "HttpSettings",
    "Key",
    "LimitSettings",
    "LiveSettings",
    "LiveValue",
    "McpServerSettings",
    "MediaSettings",
    "ModelOptionSettings",
    "ModelSettings",
    "NodeSettings",
    "PolicySettings",
    "PriceSettings",
    "ProviderSettings",
    "PushSettings",
    "ReloadResult",
    "RemoteAgentSettings",
    "RetentionSettings",
    "RouteSettings",
    "SandboxSettings",
    "ScheduleSettings",
    "SessionSettings",
    "Settings",
    "SettingsError",
    "SettingsSource",
    "SlackSettings",
    "SmsSettings",
    "StorageSettings",
    "TaskSettings",
    "TelegramSettings",
    "TelemetrySettings",
    "ToolSettings",
    "WebSearchSettings",
    "commented_file",
    "effective",
    "effective_view",
    "find_key",
    "load_settings",
    "located",
    "parse_key",
    "parse_value",
    "secrets_of",
    "set_key",
    "settings_text",
    "shown_value",
    "unset_key",
    "walk",
]
