"""From the layers to Settings: every value is checked where it stands, and all mistakes are told at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from pegasus.settings.checks import check_settings
from pegasus.settings.errors import SettingsError, SettingsProblem, closest
from pegasus.settings.interpolate import Interpolated, InterpolationError, interpolate
from pegasus.settings.layers import (
    Layer,
    Raw,
    environment_layers,
    file_layer,
    override_layers,
    provider_layers,
    toml_value,
)
from pegasus.settings.model import PROVIDER_TYPES, Settings, SettingsSource
from pegasus.settings.rules import RULE, Rule, SectionRule, TableRule, Unfit, is_clean

Path = tuple[str, ...]
Tree = dict[str, Any]

_MAX_NAME: Final = 64


def load_settings(source: SettingsSource, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a source and an environment. Raises SettingsError with everything that is wrong."""
    problems: list[SettingsProblem] = []
    layers = provider_layers(environ)
    if source.file is not None and (layer := file_layer(source.file, required=source.required, problems=problems)):
        layers.append(layer)
    layers += environment_layers(environ, problems)
    layers += override_layers(source.overrides, problems)
    reader = _Reader(environ, problems)
    for layer in layers:
        reader.section(Settings, layer.table, (), reader.tree, layer)
    _infer_types(reader.tree)
    settings: Settings = _build(Settings(origins=reader.origins, source=source), reader.tree)
    problems += check_settings(settings, {problem.key for problem in problems})
    if problems:
        raise SettingsError(problems)
    return settings


def reload_settings(settings: Settings, environ: Mapping[str, str] = os.environ) -> Settings:
    """The same file and options read again. Raises SettingsError; the old settings stay good."""
    return load_settings(settings.source, environ)


def changed_keys(old: Settings, new: Settings) -> tuple[str, ...]:
    """The key paths whose values differ, for the log line of a reload."""
    before, after = dict(leaves(old)), dict(leaves(new))
    return tuple(key for key in sorted({*before, *after}) if before.get(key) != after.get(key))


def leaves(section: Any, path: Path = ()) -> list[tuple[str, Any]]:
    """All key paths of the settings with their values, in the order of definition."""
    found: list[tuple[str, Any]] = []
    for name, rule in rules_of(type(section)).items():
        value = getattr(section, name)
        if isinstance(rule, Rule):
            found.append((".".join((*path, name)), value))
        elif rule.named:
            for key, one in value.items():
                found += leaves(one, (*path, name, key))
        else:
            found += leaves(value, (*path, name))
    return found


def secrets_of(settings: Settings) -> tuple[str, ...]:
    """Every secret in the settings, for the mask of the logs."""
    return tuple(secret for secret in _secrets(settings) if secret)


def _secrets(section: Any) -> Iterator[str]:
    for name, rule in rules_of(type(section)).items():
        value = getattr(section, name)
        if isinstance(rule, SectionRule):
            for inner in value.values() if rule.named else (value,):
                yield from _secrets(inner)
        elif rule.secret:
            yield from value.values() if isinstance(rule, TableRule) else (value,)


def rules_of(cls: type[attrs.AttrsInstance]) -> Mapping[str, Rule | SectionRule]:
    """What each key of a section may hold."""
    return {field.name: field.metadata[RULE] for field in attrs.fields(cls) if RULE in field.metadata}


# ------------------------------------------------------------------ reading


class _Reader:
    """Walks a layer along the classes, puts good values into `tree` and mistakes into `problems`."""

    def __init__(self, environ: Mapping[str, str], problems: list[SettingsProblem]) -> None:
        self.environ = environ
        self.problems = problems
        self.tree: Tree = {}
        self.origins: dict[str, str] = {}

    def section(self, cls: type[attrs.AttrsInstance], table: object, path: Path, tree: Tree, layer: Layer) -> None:
        rules = rules_of(cls)
        for name, value in self._items(table, path, layer, "a table of keys: " + ", ".join(rules)):
            key = name.lower() if layer.folded else name
            rule = rules.get(key)
            here = (*path, key)
            if rule is None:
                self._unknown(here, list(rules), layer)
            elif isinstance(rule, SectionRule):
                inner = tree.setdefault(key, {})
                if rule.named:
                    self._named(rule, value, here, inner, layer)
                else:
                    self.section(rule.cls, value, here, inner, layer)
            else:
                self._leaf(rule, value, here, tree, layer)

    def _named(self, rule: SectionRule, table: object, path: Path, tree: Tree, layer: Layer) -> None:
        for name, value in self._items(table, path, layer, f"tables, as [{'.'.join(path)}.NAME]"):
            key = _known_name(name, tree) if layer.folded else name
            if not (_is_model(key) if rule.models else _is_name(key)):
                allowed = '"<provider>/<model>"' if rule.models else f"letters, digits, - and _, at most {_MAX_NAME}"
                self.problems.append(SettingsProblem(layer.source, ".".join(path), f'the name "{key[:80]}"', allowed))
            else:
                self.section(rule.cls, value, (*path, key), tree.setdefault(key, {}), layer)

    def _leaf(self, rule: Rule, value: object, path: Path, tree: Tree, layer: Layer) -> None:
        if isinstance(rule, TableRule):
            inner = tree.setdefault(path[-1], {})
            self.origins[".".join(path)] = layer.source
            for name, each in self._items(value, path, layer, "a table"):
                key = name.lower() if layer.folded and not rule.secret else name
                self._leaf(rule.each, each, (*path, key), inner, layer)
            return
        try:
            tree[path[-1]] = rule.check(self._filled(rule, value))
            self.origins[".".join(path)] = layer.source
        except InterpolationError as error:
            self.problems.append(SettingsProblem(layer.source, ".".join(path), error.found, error.allowed))
        except Unfit:
            self.problems.append(SettingsProblem(layer.source, ".".join(path), describe(value, rule), rule.allowed))

    def _filled(self, rule: Rule, value: object) -> object:
        """The value with its variables; a text that is not from a file, or has variables, may stand for another type."""
        if isinstance(value, list):
            return [interpolate(item, self.environ) if isinstance(item, str) else item for item in value]
        if not isinstance(value, str):
            return value
        text = interpolate(value, self.environ)
        if rule.textual:
            quoted = isinstance(value, Raw) and text[:1] in ("'", '"') and isinstance(toml_value(text), str)
            return toml_value(text) if quoted else text
        return toml_value(text) if isinstance(value, Raw) or isinstance(text, Interpolated) else text

    def _items(self, table: object, path: Path, layer: Layer, allowed: str) -> list[tuple[str, object]]:
        if isinstance(table, Raw):
            table = toml_value(table)
        if isinstance(table, Mapping):
            return list(table.items())
        self.problems.append(SettingsProblem(layer.source, ".".join(path), describe(table), allowed))
        return []

    def _unknown(self, path: Path, known: list[str], layer: Layer) -> None:
        hint = closest(path[-1], known)
        self.problems.append(SettingsProblem(layer.source, ".".join(path), "an unknown key", ", ".join(known), hint))


def describe(value: object, rule: Rule | None = None) -> str:
    """What was found, as it stands in a settings file; of a secret only its kind, of a long value only its beginning."""
    if rule is not None and rule.secret:
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
    return len(name) <= _MAX_NAME and name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()


def _is_model(name: str) -> bool:
    provider, slash, model = name.partition("/")
    return (
        bool(slash and provider and model)
        and len(name) <= 4 * _MAX_NAME
        and is_clean(name)
        and not set(name) & set(" \"'")
    )


def _known_name(name: str, tree: Tree) -> str:
    """The name an environment variable means: one that is there, whatever its case and dashes, else in lower case."""
    folded = name.lower()
    return next((key for key in tree if key.lower().replace("-", "_") == folded), folded)


def _infer_types(tree: Tree) -> None:
    for name, provider in tree.get("providers", {}).items():
        if name in PROVIDER_TYPES:
            provider.setdefault("type", name)


# ------------------------------------------------------------------ building


def _build(default: Any, tree: Tree) -> Any:
    """The section with the keys of the tree changed; where nothing changes, the section itself."""
    changes: dict[str, Any] = {}
    for name, rule in rules_of(type(default)).items() if tree else ():
        if name not in tree:
            continue
        value, old = tree[name], getattr(default, name)
        if isinstance(rule, SectionRule) and rule.named:
            changes[name] = {**old, **{key: _build(old.get(key) or rule.cls(), one) for key, one in value.items()}}
        else:
            changes[name] = _build(old, value) if isinstance(rule, SectionRule) else value
    return attrs.evolve(default, **changes) if changes else default
