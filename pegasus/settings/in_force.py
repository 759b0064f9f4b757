"""The settings in force: one handle, whose object a reload replaces.

Whoever needs a setting is given a handle and asks it for what is in force `now`. `LiveSettings` is the handle of all settings. Most
parts of the program need one section, or something that is made of the settings, such as the rules about who may write. `follow` makes
a handle of that, an `LiveValue`:

    in_force = SettingsInForce(load_settings(source))
    agent = in_force.follow(lambda settings: settings.agent, "agent.")
    taken_up = await in_force.replace(load_settings(source))
    agent.now.max_thoughts  # that of the new settings

Work that must see one version of the settings from its beginning to its end, as a thought of the model does, takes `now` once.

`replace` is the one way to change them. It knows for every key whether somebody follows it:

* a key that is declared with `restart=True` keeps its value until the next start;
* a key under a prefix that somebody follows takes effect at once;
* a key that nobody follows is reported as one that needs a restart.

A prefix such as "agent." covers keys that are declared later, too. That each declared key is also read somewhere is the matter of
a test.

Order of a replacement: first files are read in a thread, which may take time and fail. Then, without a checkpoint, the functions
of the settings make the values of all handles in the order in which these were made, so that a later one may ask an earlier one,
and the guard (the models) takes or refuses the settings; if one of them raises, all handles get their old values back. Last come
the actions, which start what takes time (a channel, a server of tools). So nobody sees one key of the new settings beside another
one of the old, a failure leaves the old settings in force as a whole, and a cancel never leaves half of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import attrs
import trio

from actors import Signal
from pegasus.settings.keys import Key, keys_of
from pegasus.settings.load import changed_keys
from pegasus.settings.sections import Settings

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


def _restart_keys(cls: type[attrs.AttrsInstance], path: str = "") -> Iterator[str]:
    """Yield the paths of the keys of a section and of those below it that need a restart.

    path: of the section, with a dot at its end. Sections under names of the user's own are left out: a key in one of them cannot
    need a restart, as it has no one path.
    """
    for name, key in keys_of(cls).items():
        if isinstance(key, Key):
            if key.restart:
                yield path + name
        elif not key.named:
            yield from _restart_keys(key.cls, f"{path}{name}.")


RESTART_KEYS: Final = frozenset(_restart_keys(Settings))
"""Paths of the keys whose new values count from the next start on, as they are declared."""
SANDBOX_KEYS: Final = ("sandbox.", "tools.allowed_paths")
"""Prefixes of the keys that decide about the walls around commands and around servers that are programs."""


@attrs.frozen
class ReloadResult:
    """Outcome of a replacement: `ReloadResult(("log.level",), ("gateway.port",))`.

    A reload puts both lists into its log line and its answer.

    Example::

        taken_up = await in_force.replace(load_settings(in_force.now.source))
        taken_up.changed        # ("log.level",)
        taken_up.after_restart  # ()
    """

    changed: tuple[str, ...] = ()
    """Key paths whose new values are in force."""
    after_restart: tuple[str, ...] = ()
    """Key paths whose old values stay in force until the next start."""


@attrs.define(eq=False)
class LiveValue(Generic[T_co]):
    """Handle of a value that a reload may replace. `LiveValue(AgentSettings())` is one of a value that stays.

    A part of the program keeps the handle, and takes `now` at the beginning of each piece of work.

    Example::

        limits = in_force.follow(lambda settings: settings.limits, "limits.")
        limits.now.guest_tasks
    """

    now: T_co
    """The value in force. Only the `LiveSettings` that made the handle changes it."""


@attrs.define(eq=False, repr=False)
class _Followed:
    """A handle with the function that makes its value."""

    handle: LiveValue[Any]
    """The handle that was given out; its `now` is replaced."""
    make: Callable[[Settings], Any]
    """Makes the value of the settings. May raise, which refuses the settings as a whole."""
    prefixes: tuple[str, ...]
    """Beginnings of the key paths that the value depends on."""
    in_thread: bool
    """True if `make` reads files, so that it is called in a thread, before anything changes."""

    def follows(self, key: str) -> bool:
        """Return whether the value depends on this key."""
        return key.startswith(self.prefixes)


class LiveSettings(LiveValue[Settings]):
    """Handle of all settings. Keys that need a restart have the values of the start.

    The module's docstring has an example.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(Settings() if settings is None else settings)
        self._followed: list[_Followed] = []
        """All handles that were given out, in the order in which they were made."""
        self._guard: tuple[tuple[str, ...], Callable[[Settings], None]] | None = None
        """Prefixes of keys, and the function that may refuse their new values; None: there is no guard."""
        self._actions: list[tuple[tuple[str, ...], Callable[[frozenset[str]], None]]] = []
        """Prefixes of keys, and the function that is called with those that have changed."""
        self._last_actions: list[Callable[[], None]] = []
        """Functions that are called after each replacement."""
        self._lock = trio.Lock()
        """Held by a replacement, so that two are carried out one after the other."""
        self._replaced = Signal()
        """Given by each replacement."""

    def follow(self, make: Callable[[Settings], T], *prefixes: str, in_thread: bool = False) -> LiveValue[T]:
        """Return a handle of what `make` returns for the settings in force.

        prefixes: of the keys that the value depends on; it is made anew when one of them has changed. in_thread: `make` reads files;
        a replacement calls it in a thread. Errors of `make` are raised, here and by the replacement.
        """
        handle = LiveValue(make(self.now))
        self._followed.append(_Followed(handle, make, prefixes, in_thread))
        return handle

    def guard(self, check: Callable[[Settings], None], *prefixes: str) -> None:
        """Call `check` with the new settings when a key with one of these prefixes changes, before anything else has changed.

        It changes what it stands for, or raises and has changed nothing; then the settings stay as they are. One for all, since
        a second one that raises could not undo the first.
        """
        if self._guard is not None:
            raise ValueError("there is a guard already")
        self._guard = prefixes, check

    def when_changed(self, act: Callable[[frozenset[str]], None], *prefixes: str) -> None:
        """Call `act` with the changed keys that have one of these prefixes, when the new settings are in force.

        It must not raise, and returns at once: what takes time is only started.
        """
        self._actions.append((prefixes, act))

    def after_replacement(self, act: Callable[[], None]) -> None:
        """Call `act` after every replacement, also after one that has changed nothing: somebody has asked for a new attempt.

        It must not raise, and returns at once.
        """
        self._last_actions.append(act)

    def follows(self, key: str) -> bool:
        """Return whether a change of this key takes effect without a restart."""
        if key in RESTART_KEYS:
            return False
        if self._guard is not None and key.startswith(self._guard[0]):
            return True
        return any(followed.follows(key) for followed in self._followed) or any(
            key.startswith(prefixes) for prefixes, _ in self._actions
        )

    async def wait_replaced(self) -> None:
        """Wait for the next replacement."""
        await self._replaced.wait()

    async def replace(self, new: Settings, also: frozenset[str] = frozenset()) -> ReloadResult:
        """Put other settings in force, and return which keys have changed.

        also: keys whose meaning has changed though their values have not, as that of a file that a key names.

        Raises what a function or the guard raises for settings that cannot work; then nothing has changed. Cancelled: nothing has
        changed.
        """
        async with self._lock:
            changed = sorted({*changed_keys(self.now, new), *also})
            now = frozenset(filter(self.follows, changed))
            due = [followed for followed in self._followed if any(map(followed.follows, now))]
            # Handles are made of the settings that will be in force, in which keys that need a restart have their old values.
            in_force = keep_restart_keys(self.now, new)
            read = {
                id(followed): await trio.to_thread.run_sync(followed.make, in_force)
                for followed in due
                if followed.in_thread
            }
            # No checkpoint from here to the end: a cancel comes before the change or after it.
            self._swap(in_force, now, due, read)
            for prefixes, act in self._actions:
                if concerned := frozenset(key for key in now if key.startswith(prefixes)):
                    act(concerned)
            # Also if nothing has changed: somebody may have repaired what a key points to.
            for last in self._last_actions:
                last()
            self._replaced.notify()
            return ReloadResult(
                tuple(key for key in changed if key in now), tuple(key for key in changed if key not in now)
            )

    def _swap(self, new: Settings, changed: frozenset[str], due: list[_Followed], read: dict[int, Any]) -> None:
        """Change all handles in the order in which they were made, so that a later one may use an earlier one."""
        before = self.now, [followed.handle.now for followed in due]
        try:
            self.now = new
            for followed in due:
                followed.handle.now = read[id(followed)] if followed.in_thread else followed.make(new)
            if self._guard is not None:
                prefixes, check = self._guard
                if any(key.startswith(prefixes) for key in changed):
                    check(new)
        except BaseException:
            self.now = before[0]
            for followed, value in zip(due, before[1], strict=True):
                followed.handle.now = value
            raise


def keep_restart_keys(old: Settings, new: Settings) -> Settings:
    """Return the new settings with the old values of the keys that need a restart, and with the sources of these values."""
    origins = {key: origin for key, origin in new.origins.items() if key not in RESTART_KEYS}
    origins |= {key: origin for key, origin in old.origins.items() if key in RESTART_KEYS}
    settings: Settings = attrs.evolve(_keep(old, new), origins=origins)
    return settings


def _keep(old: Any, new: Any) -> Any:
    """Return a section with the old values of its keys that need a restart."""
    values: dict[str, Any] = {}
    for name, key in keys_of(type(new)).items():
        if isinstance(key, Key):
            if key.restart:
                values[name] = getattr(old, name)
        elif not key.named:
            values[name] = _keep(getattr(old, name), getattr(new, name))
    return attrs.evolve(new, **values)
