"""The places settings come from, each read into plain tables, the later over the earlier.

The keys of model providers in the environment, the file, `PEGASUS__…` variables, `--set`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pegasus.settings.errors import SettingsProblem

MAX_FILE_BYTES: Final = 1 << 20
PREFIX: Final = "PEGASUS__"

PROVIDER_VARIABLES: Final = {
    "ANTHROPIC_API_KEY": ("anthropic", "api_key"),
    "ANTHROPIC_BASE_URL": ("anthropic", "base_url"),
    "OPENAI_API_KEY": ("openai", "api_key"),
    "OPENAI_BASE_URL": ("openai", "base_url"),
    "GEMINI_API_KEY": ("gemini", "api_key"),
    "GEMINI_BASE_URL": ("gemini", "base_url"),
    "OLLAMA_BASE_URL": ("ollama", "base_url"),
}


class Raw(str):
    """A value from a command line or an environment variable: a TOML value, or else text."""

    __slots__ = ()


class Layer:
    """What one place says. folded: its key names come without regard to case."""

    __slots__ = ("folded", "source", "table")

    def __init__(self, source: str, table: Mapping[str, Any], *, folded: bool = False) -> None:
        self.source = source
        self.table = table
        self.folded = folded


def provider_layers(environ: Mapping[str, str]) -> list[Layer]:
    """The defaults of api_key and base_url of the standard providers."""
    return [
        Layer(variable, {"providers": {name: {key: environ[variable].replace("${", "$${")}}})
        for variable, (name, key) in PROVIDER_VARIABLES.items()
        if environ.get(variable)
    ]


def environment_layers(environ: Mapping[str, str], problems: list[SettingsProblem]) -> list[Layer]:
    """One layer for each `PEGASUS__SECTION__KEY`."""
    layers = []
    for variable in sorted(name for name in environ if name[: len(PREFIX)].upper() == PREFIX):
        path = variable[len(PREFIX) :].split("__")
        if "" in path:
            problems.append(SettingsProblem(variable, "", "an empty name between underscores", "PEGASUS__SECTION__KEY"))
        else:
            layers.append(Layer(variable, _nested(path, Raw(environ[variable])), folded=True))
    return layers


def override_layers(overrides: Iterable[str], problems: list[SettingsProblem]) -> list[Layer]:
    """One layer for each `section.key=value` of --set."""
    layers = []
    for override in overrides:
        key, equals, value = override.partition("=")
        path = [part.strip() for part in key.split(".")]
        if not equals or "" in path:
            problems.append(SettingsProblem("--set", "", f'"{key}"', "section.key=value"))
        else:
            layers.append(Layer("--set", _nested(path, Raw(value))))
    return layers


def _nested(path: list[str], value: Raw) -> Mapping[str, Any]:
    table: Any = value
    for name in reversed(path):
        table = {name: table}
    return table  # type: ignore[no-any-return]


# ------------------------------------------------------------------ the file


def file_layer(file: Path, *, required: bool, problems: list[SettingsProblem]) -> Layer | None:
    """What the file says; None where there is none or it cannot be read, which is then among the problems."""
    content = _content(file, required=required, problems=problems)
    if content is None:
        return None
    import tomllib

    try:
        return Layer(str(file), tomllib.loads(content))
    except ValueError as error:  # TOMLDecodeError, or a number with thousands of digits
        problems.append(_syntax(file, str(error)))
    except RecursionError:
        problems.append(_syntax(file, "brackets nested too deep"))
    return None


def _content(file: Path, *, required: bool, problems: list[SettingsProblem]) -> str | None:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            problems.append(SettingsProblem(str(file), "", f"more than {MAX_FILE_BYTES} bytes", "a smaller TOML file"))
            return None
        return data.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if required:
            problems.append(
                SettingsProblem(str(file), "", "no such file", "a TOML file, as --config or PEGASUS_CONFIG names it")
            )
    except IsADirectoryError:
        problems.append(SettingsProblem(str(file), "", "a folder", "a TOML file"))
    except UnicodeDecodeError as error:
        problems.append(
            SettingsProblem(str(file), "", f"a byte that is not UTF-8 at {error.start}", "a TOML file in UTF-8")
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.append(
            SettingsProblem(str(file), "", f"a file that cannot be read ({reason})", "a readable TOML file")
        )
    return None


def _syntax(file: Path, message: str) -> SettingsProblem:
    """The parser puts the place at the end: `Invalid value (at line 3, column 8)`."""
    match = re.fullmatch(r"(.*) \(at (.*)\)", message)
    found, place = match.groups() if match else (message, "")
    return SettingsProblem(str(file), place, found[:1].lower() + found[1:], "TOML 1.0 (https://toml.io)")


# ------------------------------------------------------------------ values outside a file


def toml_value(text: str) -> Any:
    """The text as a TOML value where it is one, else the text itself."""
    stripped = text.strip()
    if stripped in ("true", "false"):
        return stripped == "true"
    if re.fullmatch(r"[+-]?(0|[1-9][0-9]{0,18})", stripped):
        return int(stripped)
    if not stripped or not re.match(r"""[\[{"'0-9+-]|inf|nan""", stripped):
        return text
    return _parsed(stripped, text)


def _parsed(stripped: str, text: str) -> Any:
    import tomllib

    try:
        table = tomllib.loads(f"value = {stripped}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text
