"""Reading the settings again while the daemon runs (SIGHUP, `config.reload`): what can change at once does, the rest is named."""

from __future__ import annotations

import os
from random import Random

import trio

from pegasus.gateway import BadParams, Caller, Params
from pegasus.host import Home
from pegasus.messages import Json
from pegasus.models import Models
from pegasus.models.base import LanguageModel, ModelRequest, ModelResponse
from pegasus.models.roles import ModelConfigError
from pegasus.observe import configure_logging, get_logger
from pegasus.settings import Settings, SettingsError, changed_keys, reload_settings, secrets_of

_log = get_logger("settings")

AT_ONCE = ("models.", "providers.", "log.")
"""Sections that take effect without a restart."""


class CurrentModel:
    """The model that thinks now; a reload puts another one in its place between two calls."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    @property
    def name(self) -> str:
        """`<provider>/<model>` as in the settings."""
        return self.model.name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask the model of this moment."""
        return await self.model.generate(request)


def make_models(settings: Settings) -> Models:
    """The models of these settings. Raises ModelConfigError."""
    return Models(settings.models, settings.providers, env=os.environ, rng=Random())  # noqa: S311 jitter only


class Reloader:
    """Holds the settings in force. `model` follows them; `run` does what `request` asked for."""

    def __init__(self, home: Home, settings: Settings, token: str, *, quiet_stderr: bool) -> None:
        self.settings = settings
        self.models = make_models(settings)
        self.model = CurrentModel(self.models.get("default", "conversation"))
        self._home = home
        self._token = token
        self._quiet = quiet_stderr
        self._asked = trio.Event()
        self._retired: list[Models] = []
        self._configure_logs()

    def request(self) -> None:
        """Ask for a reload; never waits (a signal handler's way)."""
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever it was asked for; mistakes are logged, and the old settings stay."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
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
        if any(not key.startswith("log.") for key in now):
            models = make_models(new)
            self.model.model = models.get("default", "conversation")
            old, self.models = self.models, models
            await models.warm_up()
            self._retired.append(old)  # a call may be under way on it
        self.settings = new
        self._configure_logs()
        _log.info("settings reloaded", changed=now, after_restart=later)
        return {"changed": list(now), "afterRestart": list(later)}

    def _configure_logs(self) -> None:
        secrets = (self._token, *secrets_of(self.settings))
        log = self.settings.log
        configure_logging(
            self._home.log,
            level=log.level,
            format=log.format,
            secrets=secrets,
            quiet_stderr=self._quiet,
        )
