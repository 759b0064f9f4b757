"""Settings: what a person may decide, in pegasus.toml, in `PEGASUS__…` variables and with --set.

`sections` lists every key with its default and limits, by means of `keys`. `sources` reads the places that settings come
from, `load` checks and merges them, `checks` looks at several keys together, `render` writes TOML. All mistakes are found
at once, and each names its source, its key path, the value that was found and the values that are allowed.
docs/user/settings.md is the page for people.

A `Settings` object is immutable. A reload makes a new one (`load_settings` with the `source` of the old one), and whoever uses
settings replaces the whole object, so that no reader ever sees one key of the new file beside another one of the old. What a
package needs it is given as its section (`settings.gateway`), not as the whole.
"""

from pegasus.settings.keys import SettingsError
from pegasus.settings.load import changed_keys, load_settings, secrets_of
from pegasus.settings.render import commented_file, effective
from pegasus.settings.sections import (
    MODEL_ROLES,
    PROVIDER_TYPES,
    AgentSettings,
    BudgetSettings,
    ModelSettings,
    PriceSettings,
    ProviderSettings,
    RouteSettings,
    SessionSettings,
    Settings,
    SettingsSource,
    TaskSettings,
    ToolSettings,
    WebSearchSettings,
)

__all__ = [
    "MODEL_ROLES",
    "PROVIDER_TYPES",
    "AgentSettings",
    "BudgetSettings",
    "ModelSettings",
    "PriceSettings",
    "ProviderSettings",
    "RouteSettings",
    "SessionSettings",
    "Settings",
    "SettingsError",
    "SettingsSource",
    "TaskSettings",
    "ToolSettings",
    "WebSearchSettings",
    "changed_keys",
    "commented_file",
    "effective",
    "load_settings",
    "secrets_of",
]
