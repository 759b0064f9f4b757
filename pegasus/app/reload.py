"""Reading the settings again while the daemon runs (SIGHUP, `config.reload`): what can change at once does, the rest is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from pegasus.app.economy import Economy
from pegasus.gateway import BadParams, Caller, Params
from pegasus.host import Home
from pegasus.messages import Json
from pegasus.models import LanguageModel, ModelConfigError, ModelRequest, ModelResponse, Models
from pegasus.observe import configure_logging, get_logger
from pegasus.settings import Settings, SettingsError, changed_keys, reload_settings, secrets_of

if TYPE_CHECKING:
    from actors import Ref
    from pegasus.models import BreakerStatus, Meter
    from pegasus.storage import JournalMessage

_log = get_logger("settings")

AT_ONCE = ("models.", "providers.", "log.", "budget.", "prices.")
"""Sections that take effect without a restart."""
MODELS: Final = ("models.", "providers.")
CHOICE: Final = "models/choice.json"
"""Where a model that was chosen at run time is kept, below data/."""
_LARGEST_CHOICE = 4096


class FollowedModel:
    """The model that `get` gives at the moment of each call; between two of them there may be another one in its place."""

    def __init__(self, get: Callable[[], LanguageModel]) -> None:
        self._get = get

    @property
    def name(self) -> str:
        """`<provider>/<model>` as in the settings."""
        return self._get().name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask the model of this moment."""
        return await self._get().generate(request)


def make_models(settings: Settings, meter: Callable[[], Meter] | None = None) -> Models:
    """The models of these settings. Raises ModelConfigError."""
    return Models(settings.models, settings.providers, rng=Random(), meter=meter)  # noqa: S311 jitter only


class Reloader:
    """Holds the settings in force. `model` follows them; `run` does what `request` asked for. A `ModelSwitch`.

    journal: who keeps what is chosen at run time; known once the tree has grown.
    """

    def __init__(self, home: Home, settings: Settings, token: str, economy: Economy) -> None:
        self.settings = settings
        self.economy = economy
        self.journal: Ref[JournalMessage] | None = None
        self._home = home
        self._token = token
        self._asked = trio.Event()
        self._is_cold = self._is_stale = False
        self._configure_logs()
        self.models = make_models(settings, economy.books)
        self._take_up(self.models, _kept_choice(home))
        self._thinking = self.models.get("default", "conversation")
        self.model = FollowedModel(lambda: self._thinking)

    def request(self) -> None:
        """Ask for a reload; never waits (a signal handler's way)."""
        self._is_stale = True
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever it was asked for, and import what a chosen model needs; mistakes are logged, and the old settings stay."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            if self._is_cold:
                self._is_cold = False
                await self.models.warm_up()
            if not self._is_stale:
                continue
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
            models = make_models(new, self.economy.books)
            models.get("default", "conversation")  # raises before anything has changed
            self._take_up(models, self.models.chosen)
            self._thinking = models.get("default", "conversation")
            self.models = models  # a call that is under way keeps what it needs of the old ones
            await models.warm_up()
        self.settings = new
        self.economy.apply(new)
        self._configure_logs()
        _log.info("settings reloaded", changed=now, after_restart=later)
        return {"changed": list(now), "afterRestart": list(later)}

    def failing(self) -> Mapping[str, BreakerStatus]:
        """The models that failed when they were last asked, where others stand behind them."""
        return self.models.breakers()

    # ------------------------------------------------------------ a model chosen at run time

    @property
    def current(self) -> str:
        """As in ModelSwitch."""
        return self.model.name

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
        self._thinking = self.models.get("default", "conversation")
        self._is_cold = True
        self._asked.set()
        _log.info("model chosen", model=name, by="the settings" if not spec else "/model")
        return name

    def _take_up(self, models: Models, spec: str) -> None:
        """Go on with what was chosen before, if it is still possible."""
        try:
            models.choose(spec)
        except ModelConfigError as error:
            models.choose("")
            _log.warning("the chosen model cannot be used, that of the settings is", chosen=spec, error=str(error))

    def _configure_logs(self) -> None:
        secrets = (self._token, *secrets_of(self.settings))
        log = self.settings.log
        configure_logging(
            self._home.log,
            level=log.level,
            format=log.format,
            secrets=secrets,
        )


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
