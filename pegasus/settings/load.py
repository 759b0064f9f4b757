"""Loading: from the sources to one Settings object, or to an error with every mistake.

Each value is checked where it is written, also one that a later source overrides, so that a person sees all mistakes at
once and each with its place. Good values go into a tree of plain dicts, which replaces defaults at the end. Checks that
concern several keys come last (`checks`), and skip keys that have a mistake already.

The sources in the order of their rank, a later one wins: defaults, the usual variables of providers, the file,
`PEGASUS__…` variables, --set. Merging is by key and not by section, so that --set gateway.port=0 leaves the rest of [gateway] as
the file has it. A list is one value and is replaced as a whole, because there would be no way to remove an item otherwise.

An unknown key is a mistake and not ignored. A misspelt key that is ignored leaves the default in force without any sign of it,
which is expensive for a budget and dangerous for `allow_from`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from pegasus.settings.checks import check_settings
from pegasus.settings.errors import SettingsError, SettingsProblem, closest
from pegasus.settings.keys import Key, Section, check_value, is_clean, key_of, keys_of
from pegasus.settings.sections import PROVIDER_TYPES, Settings, SettingsSource
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


def load_settings(source: SettingsSource, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of a source and an environment. Raises SettingsError with everything that is wrong.

    environ: usually os.environ; variables of providers, `PEGASUS__…`, and those that `${…}` names are read from it.

    Example::

        settings = load_settings(SettingsSource(Path("pegasus.toml"), overrides=("gateway.port=0",)))
    """
    problems: list[SettingsProblem] = []
    layers = provider_layers(environ)
    if source.file is not None and (layer := file_layer(source.file, required=source.required, problems=problems)):
        layers.append(layer)
    layers += environment_layers(environ, problems)
    layers += override_layers(source.overrides, problems)
    reader = _SettingsReader(environ, problems)
    for layer in layers:
        reader.read_section(Settings, layer.table, (), reader.tree, layer)
    _infer_types(reader.tree)
    settings: Settings = _build(Settings(origins=reader.origins, source=source), reader.tree)
    problems += check_settings(settings, {problem.key for problem in problems})
    if problems:
        raise SettingsError(problems)
    return settings


def reload_settings(settings: Settings, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings read again from the same file and options. Raises SettingsError; the old settings stay valid.

    The environment is that of the process, which does not change while it runs: new keys belong in the file.
    """
    return load_settings(settings.source, environ)


def changed_keys(old: Settings, new: Settings) -> tuple[str, ...]:
    """Return the key paths whose values differ, for the log line of a reload.

    Paths only, no values: one of them may be a secret. A section that was added or removed counts with all its keys.
    """
    before, after = dict(leaves(old)), dict(leaves(new))
    return tuple(key for key in sorted({*before, *after}) if before.get(key) != after.get(key))


def leaves(section: Any, path: Path = ()) -> list[tuple[str, Any]]:
    """Return all key paths of the settings with their values, in the order of definition."""
    found: list[tuple[str, Any]] = []
    for name, key in keys_of(type(section)).items():
        value = getattr(section, name)
        if isinstance(key, Key):
            found.append((".".join((*path, name)), value))
        elif key.named:
            for inner_name, inner in value.items():
                found += leaves(inner, (*path, name, inner_name))
        else:
            found += leaves(value, (*path, name))
    return found


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Return every secret in the settings, for the mask of the logs; passwords in addresses are among them.

    Secrets that are in no setting, such as the token in the home's file, are added by the caller.
    """
    return tuple(secret for secret in _secrets(settings) if secret)


def _secrets(section: Any) -> Iterator[str]:
    """Yield every secret below a section."""
    for name, key in keys_of(type(section)).items():
        value = getattr(section, name)
        if isinstance(key, Section):
            for inner in value.values() if key.named else (value,):
                yield from _secrets(inner)
        elif key.secret:
            yield from value.values() if key.each is not None else (value,)
        elif isinstance(value, str) and "@" in value and "://" in value:
            yield _password(value)


def _password(url: str) -> str:
    """Return the password in an address, or ""."""
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""


# ------------------------------------------------------------------ reading


class _SettingsReader:
    """Walk of a layer along the classes. Good values go into `tree`, mistakes into `problems`.

    The tree has the shape of the settings, with only the keys that were set. Layers are walked in the order of their rank, so
    that a later value replaces an earlier one; a table of names (providers, routes) is merged name by name.

    Example::

        reader = _SettingsReader(os.environ, problems)
        for layer in layers:
            reader.read_section(Settings, layer.table, (), reader.tree, layer)
    """

    def __init__(self, environ: Mapping[str, str], problems: list[SettingsProblem]) -> None:
        self.environ = environ
        """Variables that `${…}` in a value may name."""
        self.problems = problems
        """Mistakes so far; the caller's list, to which those of the sources belong as well."""
        self.tree: Tree = {}
        """Good values so far."""
        self.origins: dict[str, str] = {}
        """Source of each value in the tree by its dotted key path; becomes `Settings.origins`."""

    def read_section(self, cls: type[attrs.AttrsInstance], table: object, path: Path, tree: Tree, layer: Layer) -> None:
        """Read a table into `tree`, which is the part of the whole tree at `path`.

        cls: the settings class of the section. Names of environment variables are folded to lower case (`Layer.folded`);
        keys of a file are not, since TOML distinguishes them.
        """
        keys = keys_of(cls)
        fields = attrs.fields_dict(attrs.resolve_types(cls))
        for written, value in self._items(table, path, layer, "a table of keys: " + ", ".join(keys)):
            name = written.lower() if layer.folded else written
            key = keys.get(name)
            if key is None:
                hint = closest(name, list(keys))
                self._report(layer, (*path, name), "an unknown key", ", ".join(keys), hint)
            elif isinstance(key, Key):
                self._read_key(key, fields[name], value, (*path, name), tree, layer)
            elif key.named:
                self._read_named(key, value, (*path, name), tree.setdefault(name, {}), layer)
            else:
                self.read_section(key.cls, value, (*path, name), tree.setdefault(name, {}), layer)

    def _read_named(self, section: Section, table: object, path: Path, tree: Tree, layer: Layer) -> None:
        """Read tables under names of the user's own. A name is created by its first key, and merged with later layers."""
        for written, value in self._items(table, path, layer, f"tables, as [{'.'.join(path)}.NAME]"):
            name = _known_name(written, tree) if layer.folded else written
            if not (_is_model(name) if section.models else _is_name(name)):
                allowed = '"<provider>/<model>"' if section.models else f"letters, digits, - and _, at most {_MAX_NAME}"
                self._report(layer, path, f'the name "{name[:80]}"', allowed)
            else:
                self.read_section(section.cls, value, (*path, name), tree.setdefault(name, {}), layer)

    def _read_key(
        self, key: Key, field: attrs.Attribute[Any], value: object, path: Path, tree: Tree, layer: Layer
    ) -> None:
        """Read one value into the tree, or report why it cannot be used.

        The converter and the validators raise exceptions of several kinds, all of them ValueErrors; their texts are of no use to
        a person, so that the message is made of the value and the key's own words.
        """
        if key.each is not None:
            self._read_table(key, key.each, value, path, tree, layer)
            return
        try:
            tree[path[-1]] = check_value(field, self._filled(value, textual=field.type is str))
            self.origins[".".join(path)] = layer.source
        except InterpolationError as error:
            self._report(layer, path, error.found, error.allowed)
        except ValueError:
            self._report(layer, path, describe(value, secret=key.secret), key.allowed)

    def _read_table(
        self, key: Key, each: attrs.Attribute[Any], table: object, path: Path, tree: Tree, layer: Layer
    ) -> None:
        """Read a table of values under names of the user's own; those of environment variables are in capitals."""
        inner = tree.setdefault(path[-1], {})
        self.origins[".".join(path)] = layer.source
        item = key_of(each)
        for written, value in self._items(table, path, layer, "a table"):
            name = written.lower() if layer.folded and not key.secret else written
            self._read_key(item, each, value, (*path, name), inner, layer)

    def _report(self, layer: Layer, path: Path, found: str, allowed: str, hint: str = "") -> None:
        """Add a mistake."""
        self.problems.append(SettingsProblem(layer.source, ".".join(path), found, allowed, hint))

    def _filled(self, value: object, *, textual: bool) -> object:
        """Return the value with its variables filled in.

        A text that comes from outside a file, or has variables, may stand for another type. textual: the key holds a text,
        so that nothing but quotes around it is taken as TOML.
        """
        if isinstance(value, list):
            return [interpolate(item, self.environ) if isinstance(item, str) else item for item in value]
        if not isinstance(value, str):
            return value
        text = interpolate(value, self.environ)
        if textual:
            quoted = isinstance(value, Raw) and text[:1] in ("'", '"') and isinstance(toml_value(text), str)
            return toml_value(text) if quoted else text
        return toml_value(text) if isinstance(value, Raw) or isinstance(text, Interpolated) else text

    def _items(self, table: object, path: Path, layer: Layer, allowed: str) -> list[tuple[str, object]]:
        """Return the entries of a table, none if it is something else, which is a mistake."""
        if isinstance(table, Raw):
            table = toml_value(table)
        if isinstance(table, Mapping):
            return list(table.items())
        self._report(layer, path, describe(table), allowed)
        return []


def describe(value: object, *, secret: bool = False) -> str:
    """Return a value as it stands in a settings file; of a secret only its kind, of a long value only its beginning.

    For error messages: one printable line of bounded length, whatever was found.
    """
    if secret:
        return "a secret with control characters" if isinstance(value, str) else f"a {type(value).__name__}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        shown = value if is_clean(value) else ascii(value)[1:-1]
        return f'"{shown}"' if len(shown) <= 60 else f'"{shown[:60]}…" ({len(shown)} characters)'
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        shown = ", ".join(describe(item) for item in value[:3])
        return f"[{shown}{', …' if len(value) > 3 else ''}]"
    return str(value)[:60]


def _is_name(name: str) -> bool:
    """Return True for a name that may stand in a table's head without quotes."""
    return len(name) <= _MAX_NAME and name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()


def _is_model(name: str) -> bool:
    """Return True for `<provider>/<model>`. Models of some providers have more slashes and colons in their names."""
    provider, slash, model = name.partition("/")
    return (
        bool(slash and provider and model)
        and len(name) <= 4 * _MAX_NAME
        and is_clean(name)
        and not set(name) & set(" \"'")
    )


def _known_name(name: str, tree: Tree) -> str:
    """Return the name that an environment variable means: a known one, whatever its case and dashes, else in lower case.

    Variables have neither lower case nor dashes by custom, names in a file may: PEGASUS__PROVIDERS__MY_PROXY is `My-Proxy`.
    """
    folded = name.lower()
    return next((key for key in tree if key.lower().replace("-", "_") == folded), folded)


def _infer_types(tree: Tree) -> None:
    """Give a provider that is named like a type that type.

    So `[providers.anthropic]` with a key is complete, while a second account needs `type`. It is done in the tree and not by a
    default, because the default of a field cannot depend on the name of its table.
    """
    for name, provider in tree.get("providers", {}).items():
        if name in PROVIDER_TYPES:
            provider.setdefault("type", name)


# ------------------------------------------------------------------ building


def _build(default: Any, tree: Tree) -> Any:
    """Return the section with the keys of the tree changed; where nothing changes, the section itself.

    default: a settings object. Named tables that the tree has and the defaults have not begin as `key.cls()`.
    """
    changes: dict[str, Any] = {}
    for name, key in keys_of(type(default)).items() if tree else ():
        if name not in tree:
            continue
        value, old = tree[name], getattr(default, name)
        if isinstance(key, Section) and key.named:
            changes[name] = {
                **old,
                **{part: _build(old.get(part) or key.cls(), inner) for part, inner in value.items()},
            }
        else:
            changes[name] = _build(old, value) if isinstance(key, Section) else value
    return attrs.evolve(default, **changes) if changes else default
