"""Reading the settings again while the daemon runs (SIGHUP, `config.reload`): what can change at once does, the rest is named."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from pegasus.gateway import BadParams, Caller, Params
from pegasus.host import Home
from pegasus.messages import Json
from pegasus.models import ModelConfigError, ModelService, PriceList
from pegasus.observe import configure_logging, get_logger
from pegasus.settings import Settings, SettingsError, changed_keys, reload_settings, secrets_of
from pegasus.tools import secrets_in_environment

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.storage import JournalMessage

_log = get_logger("settings")

AT_ONCE = ("models.", "providers.", "log.", "budget.", "prices.")
"""Sections that take effect without a restart."""
MODELS: Final = ("models.", "providers.")
CHOICE: Final = "models/choice.json"
"""Where a model that was chosen at run time is kept, below data/."""
_LARGEST_CHOICE = 4096


class Reloader:
    """Holds the settings in force, and carries out reloads and choices of a model. A `ModelSwitch`.

    models: follows the settings; whoever has a client of it need not know about reloads.
    """

    def __init__(self, home: Home, settings: Settings, token: str, models: ModelService) -> None:
        self.settings = settings
        self.models = models
        self.journal: Ref[JournalMessage] | None = None
        """Writes the chosen model to disk; known once the tree has grown."""
        self._home = home
        self._token = token
        self._asked = trio.Event()
        self._is_cold = self._is_stale = False
        self._configure_logs()
        if not _names_default(settings):
            models.restore_choice(_kept_choice(home))

    def request(self) -> None:
        """Ask for a reload; never waits (a signal handler's way)."""
        self._is_stale = True
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever it was asked for, and import what a new model needs; mistakes are logged, and the old settings stay."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._asked.wait()
                self._asked = trio.Event()
                if self._is_cold:
                    self._is_cold = False
                    nursery.start_soon(self.models.warm_up)
                if self._is_stale:
                    self._is_stale = False
                    try:
                        await self.reload()
                    except (SettingsError, ModelConfigError) as error:
                        _log.error("settings not reloaded", error=str(error))

    async def call(self, caller: Caller, params: Params) -> Json:
        """The control call `config.reload`."""
        try:
            return await self.reload()
        except (SettingsError, ModelConfigError) as error:
            raise BadParams(str(error)) from None

    async def reload(self) -> Json:
        """Read, check, apply; tells what changed and what needs a restart. Raises SettingsError, ModelConfigError."""
        new = await trio.to_thread.run_sync(reload_settings, self.settings)
        changed = changed_keys(self.settings, new)
        now = [key for key in changed if key.startswith(AT_ONCE)]
        later = [key for key in changed if key not in now]
        if any(key.startswith(MODELS) for key in now):
            self.models.reload(new.models, new.providers)  # raises before anything has changed
            self._warm_up_soon()
        self.settings = new
        if self.models.usage is not None:
            self.models.usage.configure(new.budget, PriceList(new.prices, new.providers))
        self._configure_logs()
        _log.info("settings reloaded", changed=now, after_restart=later)
        return {"changed": list(now), "afterRestart": list(later)}

    # ------------------------------------------------------------ a model chosen at run time

    @property
    def current(self) -> str:
        """As in ModelSwitch."""
        return self.models.client("default", "conversation").name

    @property
    def chosen(self) -> str:
        """As in ModelSwitch."""
        return self.models.chosen

    def choices(self) -> Sequence[str]:
        """As in ModelSwitch."""
        return self.models.choices()

    async def choose(self, spec: str) -> str:
        """As in ModelSwitch: kept first, then in force."""
        self.models.check_choice(spec)
        if self.journal is not None:
            from pegasus.storage import ReplaceFile

            content = json.dumps({"default": spec}).encode() + b"\n"
            await self.journal.ask(ReplaceFile, CHOICE, content)
        name = self.models.choose(spec)
        self._warm_up_soon()
        _log.info("model chosen", model=name, by="the settings" if not spec else "/model")
        return name

    def _warm_up_soon(self) -> None:
        self._is_cold = True
        self._asked.set()

    def _configure_logs(self) -> None:
        secrets = (self._token, *secrets_of(self.settings), *secrets_in_environment(os.environ))
        log = self.settings.log
        configure_logging(
            self._home.log,
            level=log.level,
            format=log.format,
            secrets=secrets,
        )


def _names_default(settings: Settings) -> bool:
    """Return True if the command line names the default model: it is newer than a choice of an earlier day."""
    keys = (override.partition("=")[0].replace(" ", "") for override in settings.source.overrides)
    return "models.default" in keys


def _kept_choice(home: Home) -> str:
    """What was chosen before this start, "" if nothing or if the file makes no sense."""
    try:
        with (home.data / CHOICE).open("rb") as file:
            kept = json.loads(file.read(_LARGEST_CHOICE))
        return kept["default"] if isinstance(kept["default"], str) else ""
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        _log.warning("which model was chosen cannot be read", file=CHOICE, error=str(error))
        return ""
