"""Changing settings and the model while the daemon runs.

A reload (SIGHUP, the control call `config.reload`) reads and checks all settings again, and puts them in force. A mistake
changes nothing: the settings in force stay. What each part of the program does about new settings is its own matter: it follows the
handle (`LiveSettings`), which also knows the keys that need a restart. This module adds files, the log and the models.

`/model` chooses another default model. The choice is on disk before it takes effect and is used again after a restart, until
`/model default` takes it back or a newer decision does. The newest decision counts. With the choice, the `models.default` of that
moment is kept. When the settings say something else at a reload or at a start, somebody has decided anew (in the file, or by
`config set` or a variable), and the choice is dropped. A model that the command line names with `--set models.default=…` is always
newer than a choice of an earlier run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import trio

from actors import Ref, Signal
from pegasus.gateway import BadParams, Caller, Params
from pegasus.host import Home, Notifier, write_private
from pegasus.identity import PersonaError
from pegasus.mcp import TOKENS_FOLDER
from pegasus.messages import Json
from pegasus.models import ModelConfigError, ModelService, PriceList, problems
from pegasus.observe import configure_logging, forward_logging, get_logger
from pegasus.redaction import KnownSecrets, SecretFolder, secrets_in_environment
from pegasus.sandbox import SandboxError
from pegasus.settings import (
    EditError,
    LiveSettings,
    ReloadResult,
    Settings,
    SettingsError,
    load_settings,
    located,
    secrets_of,
    settings_text,
)
from pegasus.storage import JournalMessage, KeyedStore, StorageError, stored_rows

MODEL_KEYS: Final = ("models.", "providers.")
"""Prefixes of keys that the models follow."""
USAGE_KEYS: Final = ("budget.", "prices.", "providers.")
"""Prefixes of keys that decide about costs."""
DEFAULT_MODEL: Final = "models.default"
"""Key of the settings that a choice stands in for."""
MISTAKES: Final = (SettingsError, ModelConfigError, PersonaError, SandboxError, OSError)
"""Errors of settings that cannot work, whose text is for the person who wrote them."""

_NEWER: Final = "the model of the settings is newer than the one chosen with /model, which is dropped"

_log = get_logger("settings")


class Reloader:
    """Carries out reloads and choices of a model.

    >>> reloader = Reloader(home, in_force, token, models, find_changed_files)
    >>> nursery.start_soon(reloader.run)
    >>> reloader.request()  # from a signal handler
    """

    def __init__(
        self,
        home: Home,
        in_force: LiveSettings,
        token: str,
        models: ModelService,
        find_changed_files: Callable[[Settings], frozenset[str]],
        *,
        writes_log: bool = True,
    ) -> None:
        """Set up the log, and restore the model that was chosen earlier. From now on log, models and usage follow the settings.

        find_changed_files: returns the keys that name files with another content than the one in force. It is called in a thread, and
        raises as a start does. writes_log: the log is this process's own, and follows the settings.
        """
        self.in_force = in_force
        """The settings."""
        self.models = models
        """The models that follow the settings."""
        self.journal: Ref[JournalMessage] | None = None
        """Writes the chosen model to disk; known once the journal runs."""
        self.notifier = Notifier()
        """The supervisor of the process, which hears of each reload."""
        self._find_changed_files = find_changed_files
        self._home = home
        self.secrets = KnownSecrets(
            (token, *secrets_in_environment(os.environ), *secrets_of(in_force.now)),
            SecretFolder(home.path / TOKENS_FOLDER),
        )
        """The texts that no log and no result may show: token, keys of settings and environment, tokens of MCP servers.

        Keys of earlier settings stay among them. Some are used until the next start, others may still be valid.
        """
        self._writes_log = writes_log
        self._requested = Signal()
        """Given by `request` and by a choice of a model; `run` waits for it. Several requests at once are one
        reload."""
        self._must_reload = False
        """A reload was requested and has not begun."""
        self._must_warm_up = False
        """The SDK of a new model should be imported before the next message needs it."""
        self._lock = trio.Lock()
        """Held by a reload, from the reading of the files on."""
        self._dropped = ""
        """Choice of a model that the last reload has replaced."""
        self._configure_logs()
        in_force.guard(self._reload_models, *MODEL_KEYS)
        in_force.when_changed(self._configure_usage, *USAGE_KEYS)
        in_force.when_changed(self._drop_choice, DEFAULT_MODEL)
        in_force.when_changed(self._warm_up_soon, *MODEL_KEYS)
        in_force.when_changed(self._configure_logs, "log.", "retention.")
        if not _names_default_model(in_force.now):
            models.restore_choice(_read_choice(home, in_force.now.models.default))

    def request(self) -> None:
        """Ask for a reload. Returns at once, so a signal handler may call it.

        Requests that come while a reload runs are carried out after it, once.
        """
        self._must_reload = True
        self._requested.notify()

    async def run(self) -> None:
        """Carry out requested reloads, and import the SDK of a model that was chosen. Runs until it is cancelled.

        Mistakes in the settings are logged.
        """
        async with trio.open_nursery() as nursery:
            while True:
                if not (self._must_warm_up or self._must_reload):
                    await self._requested.wait()
                if self._must_warm_up:
                    self._must_warm_up = False
                    nursery.start_soon(self.models.warm_up)
                if self._must_reload:
                    self._must_reload = False
                    try:
                        await self.reload()
                    except MISTAKES as error:
                        _log.error("settings not reloaded", error=str(error))
                    except StorageError as error:
                        _log.error("settings reloaded; a model chosen before is still on disk", error=str(error))

    async def call(self, caller: Caller, params: Params) -> Json:
        """Answer the control call `config.reload`. Raises BadParams with the mistakes in the settings."""
        try:
            return await self.reload()
        except MISTAKES as error:
            raise BadParams(str(error)) from None

    async def reload(self) -> Json:
        """Read, check and apply the settings. Return the keys that changed now, and those that change after a restart.

        Raises what is in MISTAKES; then nothing has changed. StorageError: the settings are in force, but a choice of a
        model that they replace is still on disk; a start drops it as well. The files are read in threads.
        """
        # With the lock, a reload that has read an older file does not come after one that has read a newer one.
        async with self._lock:
            with self.notifier.reloading():
                taken_up = await self._apply(await trio.to_thread.run_sync(load_settings, self.in_force.now.source))
        return {"changed": list(taken_up.changed), "afterRestart": list(taken_up.after_restart)}

    async def edit(self, change: Callable[[str], str]) -> ReloadResult:
        """Change the text of the settings file, and put what it says then in force. change: returns the new text for the old one.

        The file is written last, when nothing can be wrong with it any more; what a person has changed in it by hand meanwhile is put
        in force as well. Returns as `apply` does. Raises what `change` and `reload` raise, HomeError, and EditError without a file or
        if somebody else changes it at this moment; then nothing has changed.
        """
        async with self._lock:
            return await self._apply(await trio.to_thread.run_sync(self._write_changed, change))

    def _write_changed(self, change: Callable[[str], str]) -> Settings:
        """Return the settings of the changed file, which is written."""
        source = self.in_force.now.source
        if source.file is None:
            raise EditError("this agent has no settings file")
        old = settings_text(source)
        content = change(old)
        new = load_settings(source, content=content)
        self._check_in_use(new)
        if settings_text(source) != old:
            raise EditError("the settings file was changed meanwhile; nothing was written, try again")
        write_private(source.file.resolve(), content)
        return new

    async def apply(self, new: Settings) -> ReloadResult:
        """Put settings in force that were read and checked. Returns and raises as `reload`."""
        async with self._lock:
            return await self._apply(new)

    async def _apply(self, new: Settings) -> ReloadResult:
        files = await trio.to_thread.run_sync(self._check_in_use, new)
        self.secrets.add(secrets_of(new))
        self._dropped = ""
        taken_up = await self.in_force.replace(new, files)
        self._configure_logs()  # with the secrets of these settings
        _log.info("settings reloaded", changed=list(taken_up.changed), after_restart=list(taken_up.after_restart))
        if self._dropped:
            _log.info(_NEWER, dropped=self._dropped)
            await self._write_choice("")
        return taken_up

    def _check_in_use(self, new: Settings) -> frozenset[str]:
        """Return the keys that name files with another content. Raises SettingsError with the mistakes that these judge."""
        lines, files = problems(new.models, new.providers), frozenset[str]()
        try:
            files = self._find_changed_files(new)
        except PersonaError as error:
            lines += [f"agent.persona: {line}" for line in str(error).splitlines()]
        if lines:
            raise SettingsError(located(new, lines))
        return files

    def _reload_models(self, new: Settings) -> None:
        """Let the models follow the settings. A model that cannot work makes the replacement fail (ModelConfigError)."""
        self.models.reload(new.models, new.providers)

    def _configure_usage(self, _: frozenset[str]) -> None:
        if self.models.usage is not None:
            now = self.in_force.now
            self.models.usage.configure(now.budget, PriceList(now.prices, now.providers))

    def _drop_choice(self, changed: frozenset[str]) -> None:
        """Use the default model of the settings, which is newer than the one that was chosen."""
        self._dropped = self.models.chosen
        if self._dropped:
            self.models.choose("")

    # ------------------------------------------------------------ the model of the conversation

    async def choose(self, spec: str) -> None:
        """Use this model, which can be chosen, from the next call on, and after restarts; "" to use that of the settings.

        Raises StorageError if the choice cannot be written; then nothing has changed.
        """
        await self._write_choice(spec)
        name = self.models.choose(spec)
        self._warm_up_soon()
        _log.info("model chosen", model=name, by="the settings" if not spec else "/model")

    async def follow_choice(self) -> None:
        """Use the model that was chosen at any node, until cancelled. No home has a file with it then. Raises ActorError."""

        def take_over() -> None:
            spec = store.rows.get("default", "")
            if store.rows.get("insteadOf") == self.in_force.now.models.default and spec != self.models.chosen:
                self.models.restore_choice(spec)
                self._warm_up_soon()

        store = KeyedStore("model-choice", _read_text, after_read=take_over)
        if self.journal is not None and not _names_default_model(self.in_force.now):
            await store.open(self.journal)
            await store.follow()

    async def _write_choice(self, spec: str) -> None:
        """Write a choice to disk, with the model of the settings that it stands in for. Raises StorageError."""
        if self.journal is not None:
            store = KeyedStore("model-choice", _read_text)
            store.use(self.journal)
            async with store.change():
                await store.save({"default": spec, "insteadOf": self.in_force.now.models.default})

    def _warm_up_soon(self, _: frozenset[str] = frozenset()) -> None:
        """Let `run` import the SDK of the model that is in force now."""
        self._must_warm_up = True
        self._requested.notify()

    def _configure_logs(self, _: frozenset[str] = frozenset()) -> None:
        """Let the log follow the settings in force, and mask all secrets that are known now."""
        if not self._writes_log:
            forward_logging(self.secrets.all())
            return
        log, kept = self.in_force.now.log, self.in_force.now.retention
        configure_logging(
            self._home.log,
            level=log.level,
            format=log.format,
            secrets=self.secrets.all(),
            max_bytes=kept.log_mb * 1_000_000,
            keep=kept.log_files,
        )


def _names_default_model(settings: Settings) -> bool:
    """Return whether the command line names the default model."""
    keys = (override.partition("=")[0].replace(" ", "") for override in settings.source.overrides)
    return DEFAULT_MODEL in keys


def _read_choice(home: Home, default: str) -> str:
    """Return the model that was chosen before this start; "" if none was, or if the file cannot be read, which is logged.

    default: `models.default` of this start. A choice that was made instead of another one is older than the settings, and does not
    count.
    """
    try:
        choice, problems = stored_rows(home.data, "model-choice", _read_text)
    except OSError as error:
        choice, problems = {}, [str(error)]
    if problems:
        _log.warning("the file of the chosen model cannot be read", problems="; ".join(problems))
    spec = choice.get("default", "")
    if spec and choice.get("insteadOf") != default:
        _log.info(_NEWER, dropped=spec)
        return ""
    return spec


def _read_text(key: str, value: Json) -> tuple[str, str]:
    """Return an entry of the file. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{key}: no text")
    return key, value
