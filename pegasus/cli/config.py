"""`pegasus config check` and `pegasus config show`."""

from __future__ import annotations

from pegasus.cli.options import Options
from pegasus.host import Home
from pegasus.settings import Settings, SettingsError


def run_check(options: Options) -> int:
    """Say that all is well, or raise what is wrong."""
    home, settings = options.load()
    check_rooms(home, settings)
    file = settings.source.file
    print(f"{file}: ok" if file is not None and file.exists() else f"{file}: not there, so all defaults: ok")
    return 0


def run_show(options: Options) -> int:
    """Print the effective settings as TOML."""
    _, settings = options.load()
    from pegasus.settings import effective

    print(effective(settings))
    return 0


def check_rooms(home: Home, settings: Settings) -> None:
    """What only the rooms can judge: models and their providers, the persona. Raises SettingsError."""
    from pegasus.identity import PersonaError, load_persona
    from pegasus.models import problems as model_problems

    found = []
    for line in model_problems(settings.models, settings.providers):
        key = line.partition(":")[0].partition("[")[0]
        found.append(f"{settings.origins.get(key, 'defaults')}: {line}")
    if settings.agent.persona:
        try:
            load_persona(home.resolve(settings.agent.persona))
        except PersonaError as error:
            origin = settings.origins["agent.persona"]
            found += [f"{origin}: agent.persona: {line}" for line in str(error).splitlines()]
    if found:
        raise SettingsError(found)
