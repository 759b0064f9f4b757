"""Loading: from the sources to one Settings object, or to an error with every mistake.

Each value is checked where it is written, also one that a later source overrides, so that a person sees all mistakes at
once and each with its place. Good values go into a tree of plain dicts, which replaces defaults at the end. Checks that
concern several keys come last (`checks`), and skip keys that have a mistake already.

The sources in the order of their rank, a later one wins: defaults, the usual variables of providers, the file,
`PEGASUS__…` variables, --set. Merging is by key and not by section, so that --set gateway.port=0 leaves the rest of [gateway] as
the file has it. A list is one value and is replaced as a whole, because there would be no way to remove an item otherwise.

An unknown key is a mistake and not ignored. A misspelt key that is ignored leaves the default in force without any sign of it,
which is expensive for a budget and dangerous for `allow_from`.

Three dicts are filled on the way: `tree` with the values that were set, `origins` with the source of each, and the list of
problems. Only keys that somebody has set are in the tree, so that `Settings.origins` also says what is default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from pegasus.settings.channel_sections import CHANNEL_VARIABLES
from pegasus.settings.checks import check_settings
from pegasus.settings.keys import (
    Key,
    Section,
    SettingsError,
    SettingsProblem,
    closest,
    describe_setting,
    is_bare,
    is_clean,
    keys_of,
    walk,
)
from pegasus.settings.sections import Settings, SettingsSource
from pegasus.settings.sources import (
    Interpolated,
    InterpolationError,
    Layer,
    Raw,
    environment_layers,
    file_layer,
    interpolate,
    override_layers,
    provider_layers,
    toml_value,
)

Path = tuple[str, ...]
"""Names of the sections around a key, and its own: ("gateway", "port")."""
Tree = dict[str, Any]
"""Values that were set, in nested tables as in the file."""

_MAX_NAME: Final = 64
"""Characters of a name of the user's own, such as that of a provider: it appears in log lines and error messages."""


def load_settings(
    source: SettingsSource, environ: Mapping[str, str] = os.environ, *, content: str | None = None
) -> Settings:
    """Return the settings of a source and an environment. Raises SettingsError with everything that is wrong.

    A reload is the same with the source of the settings before (`settings.source`). environ: usually os.environ; variables of
    providers, `PEGASUS__…`, and those that `${…}` names are read from it. content: text that the file is going to have, to check a
    change before it is written; None: the file is read.

    Example::

        settings = load_settings(SettingsSource(Path("pegasus.toml"), overrides=("gateway.port=0",)))
    """
    problems: list[SettingsProblem] = []
    layers = provider_layers(environ)
    if source.file is not None:
        layer = file_layer(source.file, required=source.required, problems=problems, content=content)
        layers += [] if layer is None else [layer]
    if source.table is not None:
        layers.append(Layer("config", source.table))
    layers += environment_layers(environ, problems)
    layers += override_layers(source.overrides, problems)
    tree: Tree = {}
    origins: dict[str, str] = {}
    for layer in layers:
        _LayerReader(layer, environ, origins, problems).read_section(Settings, layer.table, (), tree)
    # After all layers: a variable of a service fills only what no other source has set.
    _fill_credentials(tree, environ, origins)
    settings: Settings = _build(Settings(origins=origins, source=source), tree)
    # Also where there are mistakes already, so that one start shows all of them.
    problems += check_settings(settings, {problem.key for problem in problems})
    if problems:
        raise SettingsError(problems)
    return settings


def changed_keys(old: Settings, new: Settings) -> tuple[str, ...]:
    """Return the key paths whose values differ, for the log line of a reload.

    Paths only, no values: one of them may be a secret. A section that was added or removed counts with all its keys.
    """
    before, after = leaves(old), leaves(new)
    return tuple(key for key in sorted({*before, *after}) if before.get(key) != after.get(key))


def leaves(settings: Settings) -> dict[str, Any]:
    """Return the value of every key path of the settings, in the order of definition."""
    return {".".join(path): value for path, _, value in walk(settings)}


def located(settings: Settings, lines: Iterable[str]) -> list[str]:
    """Return lines about keys ("models.default: found …") with the file, variable or option in front that has set the key.

    For mistakes that only other packages can judge, such as a model that does not exist.
    """
    return [f"{settings.origins.get(re.split(r'[:[]', line)[0], 'defaults')}: {line}" for line in lines]


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Return every secret in the settings, for the mask of the logs; passwords in addresses are among them.

    Secrets that are in no setting, such as the token in the home's file, are added by the caller.
    """
    found: list[str] = []
    for _, key, value in walk(settings):
        if key.secret:
            found += value.values() if key.each is not None else [value]
        if isinstance(value, str) and "://" in value:
            found += _passwords(value)
    return tuple(filter(None, found))


def _passwords(url: str) -> list[str]:
    """Return the passwords in an address: before its host, and in its query (`?password=`, `?sslpassword=`)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    in_query = [value for name, value in parse_qsl(parts.query) if name.endswith("password")]
    return [unquote(parts.password or ""), parts.password or "", *in_query]


def _fill_credentials(tree: Tree, environ: Mapping[str, str], origins: dict[str, str]) -> None:
    """Take credentials of services from their usual variables, where a section exists that does not set them.

    A variable alone makes no section: then it would decide who may write on that channel type.
    """
    for variable, (name, key) in CHANNEL_VARIABLES.items():
        section = tree.get("channels", {}).get(name)
        if section is not None and key not in section and is_clean(value := environ.get(variable, "")) and value:
            section[key] = value
            origins[f"channels.{name}.{key}"] = variable


# ------------------------------------------------------------------ reading


@attrs.frozen
class _LayerReader:
    """Walk of a layer along the settings classes, from the table of one source to a tree of good values.

    The tree has the shape of the settings, with only the keys that were set. Layers are read in the order of their rank into the
    same tree, so that a later value replaces an earlier one; a table of names (providers, routes) is merged name by name.

    Example::

        _LayerReader(layer, os.environ, origins, problems).read_section(Settings, layer.table, (), tree)
    """

    layer: Layer
    """Table and source."""
    environ: Mapping[str, str]
    """Variables that `${…}` in a value may name."""
    origins: dict[str, str]
    """Source of each value in the tree by its dotted key path; becomes `Settings.origins`."""
    problems: list[SettingsProblem]
    """Mistakes so far, to which those of the sources belong as well."""

    def read_section(self, cls: type[attrs.AttrsInstance], table: object, path: Path, tree: Tree) -> None:
        """Read a table into `tree`, which is the part of the whole tree at `path`.

        cls: the settings class of the section. Names of environment variables are folded to lower case (`Layer.folded`);
        keys of a file are not, since TOML distinguishes them.
        """
        keys = keys_of(cls)
        for written, value in self._items(table, path, "a table of keys: " + ", ".join(keys)):
            name = written.lower() if self.layer.folded else written
            key = keys.get(name)
            # Reported once for the key, whatever is below it.
            if key is None:
                hint = closest(name, list(keys))
                self._report((*path, name), "an unknown key", ", ".join(keys), hint)
            elif isinstance(key, Key):
                self._read_key(key, value, (*path, name), tree)
            elif key.named:
                self._read_named(key, value, (*path, name), tree.setdefault(name, {}))
            else:
                self.read_section(key.cls, value, (*path, name), tree.setdefault(name, {}))

    def _read_named(self, section: Section, table: object, path: Path, tree: Tree) -> None:
        """Read tables under names of the user's own. A name is created by its first key, and merged with later layers."""
        for written, value in self._items(table, path, f"tables, as [{'.'.join(path)}.NAME]"):
            name = _known_name(written, tree) if self.layer.folded else written
            if not (name in section.words or (_is_model(name) if section.models else _is_short(name))):
                words = [f'"{word}"' for word in section.words]
                own = '"<provider>/<model>"' if section.models else f"letters, digits, - and _, at most {_MAX_NAME}"
                self._report(path, f'the name "{name[:80]}"', ", ".join([*words, own]))
            else:
                self.read_section(section.class_of(name), value, (*path, name), tree.setdefault(name, {}))

    def _read_key(self, key: Key, value: object, path: Path, tree: Tree) -> None:
        """Read one value into the tree, or report why it cannot be used.

        A table of values under names of the user's own is read value by value; names of environment variables are in capitals.
        """
        # Merged value by value, so that --set can add one header to those of the file.
        if key.each is not None:
            inner = tree.setdefault(path[-1], {})
            for written, item in self._items(value, path, "a table"):
                name = written.lower() if self.layer.folded and not key.secret else written
                self._read_key(key.each, item, (*path, name), inner)
            self.origins[".".join(path)] = self.layer.source
            return
        try:
            tree[path[-1]] = key.check(self._filled(value, textual=key.type is str))
            self.origins[".".join(path)] = self.layer.source
        except InterpolationError as error:
            self._report(path, error.found, error.allowed)
        except ValueError:
            self._report(path, describe_setting(value, secret=key.secret), key.allowed)

    def _report(self, path: Path, found: str, allowed: str, hint: str = "") -> None:
        """Add a mistake of this layer to the problems, with what was found and what is allowed."""
        self.problems.append(SettingsProblem(self.layer.source, ".".join(path), found, allowed, hint))

    def _filled(self, value: object, *, textual: bool) -> object:
        """Return the value with its variables filled in.

        A text that comes from outside a file, or has variables, may stand for another type. textual: the key holds a text,
        so that nothing but quotes around it is taken as TOML.
        """
        if isinstance(value, list):
            return [self._filled(item, textual=True) for item in value]
        if isinstance(value, Mapping):
            return {name: self._filled(item, textual=not isinstance(item, Raw)) for name, item in value.items()}
        if not isinstance(value, str):
            return value
        text = interpolate(value, self.environ)
        if textual:
            # Quotes that a person has written on the command line, as in a file, are not part of the text.
            quoted = isinstance(value, Raw) and text[:1] in ("'", '"') and isinstance(toml_value(text), str)
            return toml_value(text) if quoted else text
        return toml_value(text) if isinstance(value, Raw) or isinstance(text, Interpolated) else text

    def _items(self, table: object, path: Path, allowed: str) -> list[tuple[str, object]]:
        """Return the entries of a table, none if it is something else, which is a mistake."""
        if isinstance(table, Raw):
            table = toml_value(table)
        if isinstance(table, Mapping):
            return list(table.items())
        self._report(path, describe_setting(table), allowed)
        return []


def _is_short(name: str) -> bool:
    return is_bare(name) and len(name) <= _MAX_NAME


def _is_model(name: str) -> bool:
    """Return True for `<provider>/<model>`. Models of some providers have more slashes and colons in their names."""
    provider, _, model = name.partition("/")
    return bool(provider and model) and len(name) <= 4 * _MAX_NAME and is_clean(name) and not set(name) & set(" \"'")


def _known_name(name: str, tree: Tree) -> str:
    """Return the name that an environment variable means: a known one, whatever its case and dashes, else in lower case.

    Variables have neither lower case nor dashes by custom, names in a file may: PEGASUS__PROVIDERS__MY_PROXY is `My-Proxy`.
    """
    folded = name.lower()
    return next((key for key in tree if key.lower().replace("-", "_") == folded), folded)


# ------------------------------------------------------------------ building


def _build(default: Any, tree: Tree) -> Any:
    """Return the section with the keys of the tree changed; where nothing changes, the section itself.

    default: a settings object. Named tables that the tree has and the defaults have not begin as `key.cls()`.
    """
    changes: dict[str, Any] = {}
    for name, key in keys_of(type(default)).items() if tree else ():
        # The default object stays as it is, so that unchanged sections are shared and compared at no cost.
        if name not in tree:
            continue
        value, old = tree[name], getattr(default, name)
        if isinstance(key, Section) and key.named:
            # Providers of the same name go on from their defaults, so that `[providers.anthropic]` needs no type.
            changes[name] = {
                **old,
                **{part: _build(old.get(part) or key.class_of(part)(), inner) for part, inner in value.items()},
            }
        else:
            changes[name] = _build(old, value) if isinstance(key, Section) else value
    return attrs.evolve(default, **changes) if changes else default
