"""`pegasus config …` and `pegasus reload`: check, show and change the settings.

`config check` runs the same checks as the start of the daemon, those of other packages among them, so that it cannot find less.
`config set` and `config unset` change one key of the file and nothing else in it, and only to settings that pass these checks. A
running daemon is told to read the file again, so that the answer can say whether the change is in effect now or after a restart.

A change is first made in memory: the text of the file with one key changed is parsed and checked as a whole. The file
is replaced at the very end, by a new one in one step. So a refused change, Ctrl-C or a full disk leave the old file.

Comments, order and blanks of the file are a person's own and stay as they are (`settings.edit`). Values are printed
with secrets masked; a secret that is asked for is not shown while it is typed.
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import click
import trio

from pegasus.cli.commands import JSON, Options, pegasus, program_name
from pegasus.cli.control import (
    Answer,
    ask_daemon,
    describe_refusal,
    find_daemon,
    json_line,
    print_text,
    report_failure,
    show,
)
from pegasus.cli.program import check_settings_in_use
from pegasus.client import ClientError
from pegasus.host import Home, HomeError, read_daemon, write_private
from pegasus.settings import (
    EditError,
    Key,
    Settings,
    SettingsError,
    SettingsSource,
    commented_file,
    effective,
    find_key,
    load_settings,
    parse_key,
    parse_value,
    set_key,
    settings_text,
    shown_value,
    unset_key,
)

CONFIG = pegasus.subgroup("config", "Check, show and change the settings.")


@CONFIG.declare("check", options_only=True)
def run_check(options: Options) -> int:
    """Check the settings exactly as the daemon does.

    The exit code is 78 if something is wrong.
    """
    home, settings = options.load()
    check_settings_in_use(home, settings)
    file = settings.source.file
    print_text(f"{file}: ok" if file is not None and file.exists() else f"{file}: not there, so all defaults: ok")
    if settings.mcp.servers:
        # Loaded only where there are servers: most settings have none.
        from pegasus.mcp import TOKENS_FOLDER, risks

        is_confined = settings.sandbox.mode != "off"
        for risk in risks(settings, home.path / TOKENS_FOLDER, home.workspace, is_confined=is_confined):
            print_text(f"warning: {risk}")
    return 0


@CONFIG.declare("show")
def run_show(home: Home, settings: Settings) -> int:
    """Print the settings in effect and their origin, secrets masked."""
    print_text(effective(settings))
    return 0


@CONFIG.declare("keys", options_only=True)
def run_keys(options: Options) -> int:
    """Print every key with its default and meaning.

    It is a settings file of comments: lines can be copied from it.
    """
    print_text(commented_file(program_name()))
    return 0


NO_TEXT: Final = "found bytes that are no text, allowed: UTF-8"
"""Problem of a text that was typed where it is not shown, so that the terminal's encoding is noticed only now."""
_KEY: Final = click.Argument(["key"])
"""Key path, such as models.default."""


@CONFIG.declare("get", _KEY)
def run_get(home: Home, settings: Settings, *, key: str) -> int:
    """Print the value of KEY that is in effect; a secret is masked."""
    try:
        print_text(str(shown_value(settings, parse_key(key, program_name()))))
    except EditError as error:
        return report_failure(str(error))
    return 0


@CONFIG.declare("set", _KEY, click.Argument(["value"], required=False), options_only=True, takes_dashes=True)
def run_set(options: Options, *, key: str, value: str | None) -> int:
    """Set KEY to VALUE in the settings file.

    Everything else in the file stays as it is. Without VALUE it is asked for; a secret is not shown while you type.
    Lists and tables are written as in TOML: '["a", "b"]'.
    """
    try:
        path = parse_key(key, program_name())
        text = _ask_value(key, path) if value is None else value
        change = partial(set_key, path=path, value=parse_value(path, text))
        return _change(options, path, change, "set")
    except EditError as error:
        return report_failure(str(error))


@CONFIG.declare("unset", _KEY, options_only=True)
def run_unset(options: Options, *, key: str) -> int:
    """Remove KEY from the settings file.

    Its default counts again.
    """
    try:
        path = parse_key(key, program_name())
        return _change(options, path, partial(unset_key, path=path), "removed")
    except EditError as error:
        return report_failure(str(error))


def _ask_value(key: str, path: Sequence[str]) -> str:
    """Return the value that the person types, or that is piped in. Raises EditError, click.Abort.

    A value in the command line is kept in the history of the shell. So a script pipes a secret in, and a person types it.
    """
    if not sys.stdin.isatty():
        if not (text := sys.stdin.readline().rstrip("\n")):
            raise EditError(f"there is no value for {key}: give it behind the key, or on stdin")
        return text
    try:
        return str(click.prompt(key, hide_input=_is_secret(path)))
    except UnicodeDecodeError:
        raise EditError(f"{key}: {NO_TEXT}") from None


def _is_secret(path: Sequence[str]) -> bool:
    """Return whether the declaration of a key says that its value must not be shown."""
    declared = find_key(path)
    return isinstance(declared, Key) and declared.secret


@pegasus.declare("reload", JSON, options_only=True)
def run_reload(options: Options, *, as_json: bool) -> int:
    """Make the running agent read its settings again.

    As SIGHUP does; with mistakes in the settings nothing changes, and they are listed.
    """
    home = options.home()
    source = options.source(home)
    try:
        settings = load_settings(source)
    except SettingsError:
        if read_daemon(home) is None:
            raise
        # The agent reports the mistakes itself; without the file it is found by its own announcement.
        settings = load_settings(attrs.evolve(source, file=None))
    return show(home, settings, "config.reload", {}, json_line if as_json else _reloaded_text)


def _reloaded_text(answer: Answer) -> str:
    """Return what a reload has changed, for a person."""
    now, later = (answer.get(key) or [] for key in ("changed", "afterRestart"))
    lines = [
        f"{what}: {', '.join(map(str, keys))}"
        for what, keys in (("in effect now", now), ("in effect after a restart of the agent", later))
        if isinstance(keys, list) and keys
    ]
    return "\n".join(lines) or "nothing has changed"


# ------------------------------------------------------------------ changing the file


def _change(options: Options, path: Sequence[str], change: Callable[[str], str], done: str) -> int:
    """Change the settings file, and print what is in effect.

    change: returns the new text for the old one. done: what the change does to the key, "set" or "removed".
    Raises EditError for a change that is refused, SettingsError for a file that cannot be read, HomeError.
    """
    home = options.home()
    source = options.source(home)
    assert source.file is not None  # noqa: S101 - `Options.source` always names one
    # The text is edited and not the settings that it gives: the file may have a mistake, which this change mends.
    old = settings_text(source)
    new = change(old)
    name = ".".join(path)
    if new == old:
        print_text(f"{name}: nothing to change in {source.file}")
        return 0
    try:
        settings = check_text(home, source, new)
    except SettingsError as error:
        hint = _type_hint(path, str(error), new) or _list_hint(path, str(error))
        raise EditError(_describe_refused(source.file, name, done, str(error), hint)) from None
    # For the old value in the output, and for the way to a running daemon, which was started with these settings.
    before = _load_or_none(source)
    shown = f"{'?' if before is None else shown_value(before, path)} → {shown_value(settings, path)}"
    write_settings(source.file, new)  # the last step that can fail
    print_text(f"{name}: {shown} ({source.file})")
    print_text(describe_effect(home, before or settings, settings, name, source.file))
    return 0


def _describe_refused(file: Path, name: str, done: str, mistakes: str, hint: str) -> str:
    """Return why a key was not set or removed: each mistake on a line if there are several, and the hint below them.

    mistakes: of the settings with the change, as lines. The file is not named where a mistake is about this key, or where there is no
    file: what is wrong stands in the command and not in the file.
    """
    lines: list[str] = []
    for line in mistakes.splitlines():
        place, _, rest = line.partition(f"{file}: ")
        is_of_change = not place and (not file.exists() or rest.startswith((f"{name}:", f"{name}.")))
        lines.append(rest.removeprefix(f"{name}: ") if is_of_change else line)
    refused = f"{name} was not {done}:"
    first = f"{refused} {lines[0]}" if len(lines) == 1 else "\n".join([refused, *lines])
    return "\n".join(filter(None, [first, hint]))


def _type_hint(path: Sequence[str], mistakes: str, content: str) -> str:
    """Return the command that makes a provider which has no type yet, "" if that is not what is wrong.

    mistakes: of the text of the file that is refused. content: this text.
    """
    # A provider is made by its first key, and has no type then. This is the most frequent mistake, so the way out is named.
    section = ".".join(path[:2])
    if len(path) < 3 or f"{section}.type: found nothing" not in mistakes:
        return ""
    if path[2] == "base_url":
        # The refused text is valid TOML, since the mistake that was found in it is about a key.
        url = tomllib.loads(content)["providers"][path[1]]["base_url"]
        value = shlex.quote(f'{{ type = "openai", base_url = "{url}" }}')
        return f"For a server that speaks OpenAI's format, set both: {program_name()} config set {section} {value}"
    return f"Set its type before: {program_name()} config set {section}.type openai"


def _list_hint(path: Sequence[str], mistakes: str) -> str:
    """Return how to type a list in a shell, "" if the key wants none. mistakes: of the text of the file that is refused.

    Shells take quotation marks away, so that a list arrives as `[a, b]`, which is no TOML.
    """
    if f"{'.'.join(path)}: " not in mistakes or "a list of texts" not in mistakes:
        return ""
    return f"""In a shell, with quotes around it: {program_name()} config set {".".join(path)} '["a", "b"]'"""


def check_text(home: Home, source: SettingsSource, content: str) -> Settings:
    """Return the settings that a file with this text gives, checked as the daemon does. Raises SettingsError.

    `pegasus init` uses it too. Nothing is written, so it can be asked about a text that is not in any file.
    """
    settings = load_settings(source, content=content)
    check_settings_in_use(home, settings)
    return settings


def write_settings(file: Path, content: str) -> None:
    """Replace a settings file as a whole, private to the user; a link stays one. Raises HomeError.

    Replaced and not rewritten: a crash leaves the old file or the new one. Its mode is 0600, since it may hold keys.
    """
    target = file.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HomeError(f"{target.parent}: cannot be made ({error.strerror})") from None
    write_private(target, content)


def _load_or_none(source: SettingsSource) -> Settings | None:
    """Return the settings as they are; None if they have mistakes, which the change may mend."""
    try:
        return load_settings(source)
    except SettingsError:
        return None


def describe_effect(home: Home, before: Settings, settings: Settings, name: str, file: Path) -> str:
    """Tell a running daemon to read the settings again; return a sentence about when the change counts.

    before: the settings as the daemon has them, by which it is reached.
    """
    # An environment variable or an option wins over the file. Without this hint a person would look for the mistake here.
    origin = settings.origins.get(name)
    if origin is not None and origin != str(file):
        return f"It has no effect: {origin} overrides it."
    if read_daemon(home) is None:
        return f"In effect from the next start: {program_name()}"
    try:
        answer = trio.run(ask_daemon, find_daemon(home, before), "config.reload", {})
    except ClientError as error:
        return f"The running agent did not take it over: {describe_refusal(error, 'config.reload')}"
    # The daemon names all keys that have changed since it read the file, by hand as well; only this one matters here.
    if _names(answer.get("afterRestart"), name):
        return "In effect after a restart of the agent."
    if _names(answer.get("changed"), name):
        return "In effect now."
    return "The running agent sees no change: it was started with other settings, or an option overrides this key."


def _names(keys: Any, name: str) -> bool:
    """Return whether a list of keys names this one, or one below it."""
    return isinstance(keys, list) and any(key == name or str(key).startswith(f"{name}.") for key in keys)
