"""Sources of settings, each read into plain tables: keys of providers in the environment, file, variables, `--set`.

A later source wins over an earlier one, key by key. Values from outside a file are text: `toml_value` reads them as TOML
where they are TOML. `interpolate` fills variables of the environment into any text.

Variables and --set exist for containers and for trying something out. Both use the syntax of TOML for values, so that a list is
written in the same way everywhere (`--set 'models.fallback=["openai/gpt-4o"]'`), but a plain word needs no quotes, which a
shell would take away.

`${VARIABLE}` keeps secrets out of the file, which may then be shared or put under version control. The forms are those of a shell,
without nesting and without commands: a settings file must not be able to run anything.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from pegasus.settings.keys import SettingsProblem

BY_INIT: Final = "by pegasus init; the same section further down replaces this one"
"""Comment behind the head of a section that `pegasus init` has written."""
MAX_FILE_BYTES: Final = 1 << 20
"""Bytes of a settings file at most: a name that was confused with a log or a device must not fill the memory."""
PREFIX: Final = "PEGASUS__"
"""Beginning of the variables that hold settings; two underscores also separate sections, because keys have single ones."""

PROVIDER_VARIABLES: Final = {
    # where a provider has two variables for one key, the later one wins
    "ANTHROPIC_API_KEY": ("anthropic", "api_key"),
    "ANTHROPIC_BASE_URL": ("anthropic", "base_url"),
    "OPENAI_API_KEY": ("openai", "api_key"),
    "OPENAI_BASE_URL": ("openai", "base_url"),
    "GOOGLE_API_KEY": ("gemini", "api_key"),
    "GEMINI_API_KEY": ("gemini", "api_key"),
    "GEMINI_BASE_URL": ("gemini", "base_url"),
    "OLLAMA_HOST": ("ollama", "base_url"),
    "OLLAMA_BASE_URL": ("ollama", "base_url"),
    "OPENROUTER_API_KEY": ("openrouter", "api_key"),
    "GROQ_API_KEY": ("groq", "api_key"),
    "MISTRAL_API_KEY": ("mistral", "api_key"),
    "DEEPSEEK_API_KEY": ("deepseek", "api_key"),
    "XAI_API_KEY": ("xai", "api_key"),
    "TOGETHER_API_KEY": ("together", "api_key"),
    "FIREWORKS_API_KEY": ("fireworks", "api_key"),
    "AWS_BEARER_TOKEN_BEDROCK": ("bedrock", "api_key"),
    "AWS_DEFAULT_REGION": ("bedrock", "base_url"),
    "AWS_REGION": ("bedrock", "base_url"),
    "GOOGLE_OAUTH_ACCESS_TOKEN": ("vertex", "api_key"),
    "GOOGLE_CLOUD_PROJECT": ("vertex", "base_url"),
    "AZURE_OPENAI_API_KEY": ("azure", "api_key"),
    "AZURE_OPENAI_ENDPOINT": ("azure", "base_url"),
    "LLAMACPP_BASE_URL": ("llamacpp", "base_url"),
    "LMSTUDIO_BASE_URL": ("lmstudio", "base_url"),
}
"""Provider and key that each usual variable sets. They are the names that the providers' own libraries and tools read."""
_ADDRESSES: Final = {
    # https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions-mantle.html
    "AWS_DEFAULT_REGION": "https://bedrock-mantle.{}.api.aws/v1",
    "AWS_REGION": "https://bedrock-mantle.{}.api.aws/v1",
    # https://cloud.google.com/vertex-ai/generative-ai/docs/start/openai
    "GOOGLE_CLOUD_PROJECT": "https://aiplatform.googleapis.com/v1/projects/{}/locations/global/endpoints/openapi",
    # https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle
    "AZURE_OPENAI_ENDPOINT": "{}/openai/v1",
}
"""Addresses in which a variable names only a part: the region, the project, the resource."""


class Raw(str):
    """Value from a command line or an environment variable.

    There is no syntax for types outside of a file, so that the key decides: text where it wants text, else a TOML value.

    Example: `Raw("7717")` is 7717 for `gateway.port`, and the text "7717" for `gateway.token`.
    """

    __slots__ = ()


@attrs.frozen
class Layer:
    """Table of one source.

    Example::

        Layer("--set", {"gateway": {"port": Raw("0")}})
    """

    source: str
    """File, variable or option, for error messages."""
    table: Mapping[str, Any]
    """Sections and values as `tomllib` returns them; outside a file the values are `Raw`."""
    folded: bool = attrs.field(default=False, kw_only=True)
    """Key names are matched without regard to case, as those of environment variables."""


def provider_layers(environ: Mapping[str, str]) -> list[Layer]:
    """Return the values of api_key and base_url that the usual variables of the standard providers give.

    They rank lowest, so that a file may name another key. `${` in a value is escaped, since a key is never interpolated.
    """
    layers = []
    for variable, (name, key) in PROVIDER_VARIABLES.items():
        if value := environ.get(variable):
            # The endpoint of Azure may be given with or without the path of the API.
            if variable in _ADDRESSES:
                value = _ADDRESSES[variable].format(value.rstrip("/").removesuffix("/openai/v1"))
            elif variable == "OLLAMA_HOST":
                value = _ollama_address(value)
            layers.append(Layer(variable, {"providers": {name: {key: value.replace("${", "$${")}}}))
    return layers


def _ollama_address(host: str) -> str:
    """Return the address of a server that was started with this OLLAMA_HOST: "0.0.0.0", ":8000", "box:11500", "https://box".

    The server listens there, so an address that means all interfaces becomes this machine
    (https://docs.ollama.com/faq#how-can-i-expose-ollama-on-my-network).
    """
    scheme, separator, rest = host.strip().rstrip("/").rpartition("://")
    found = re.fullmatch(r"(\[[^\]]*\]|[^:/]*)(:\d+)?(/.*)?", rest)
    if found is None:
        return host
    name = "localhost" if found[1] in ("", "0.0.0.0", "[::]") else found[1]  # noqa: S104 nothing is bound
    port = found[2] or ("" if separator else ":11434")
    return f"{scheme or 'http'}://{name}{port}{found[3] or ''}"


def environment_layers(environ: Mapping[str, str], problems: list[SettingsProblem]) -> list[Layer]:
    """Return a layer for each `PEGASUS__SECTION__KEY`; append mistakes to `problems`.

    Sorted by name, so that two spellings of one variable (upper and lower case) have the same winner each time.
    """
    layers = []
    for variable in sorted(name for name in environ if name[: len(PREFIX)].upper() == PREFIX):
        path = variable[len(PREFIX) :].split("__")
        if "" in path:
            problems.append(SettingsProblem(variable, "", "an empty name between underscores", "PEGASUS__SECTION__KEY"))
        else:
            layers.append(Layer(variable, _nested(path, Raw(environ[variable])), folded=True))
    return layers


def override_layers(overrides: Iterable[str], problems: list[SettingsProblem]) -> list[Layer]:
    """Return a layer for each `section.key=value` of --set; append mistakes to `problems`.

    A key cannot contain a dot here; `[prices."provider/model-1.5"]` can be set in a file only.
    """
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
    """Return the value as a table of tables along the path."""
    table: Any = value
    for name in reversed(path):
        table = {name: table}
    return table  # type: ignore[no-any-return]


# ------------------------------------------------------------------ the file


def file_layer(
    file: Path, *, required: bool, problems: list[SettingsProblem], content: str | None = None
) -> Layer | None:
    """Return the table of the file, None where there is none or it cannot be read; append mistakes to `problems`.

    required: a missing file is a mistake. content: text that the file is going to have; None: the file is read. A syntax error is
    one mistake, and the whole file counts as not there: tomllib does not say what it has read before.
    """
    if content is None:
        content = file_text(file, required=required, problems=problems)
    if content is None:
        return None
    content = without_replaced(content)
    try:
        return Layer(str(file), tomllib.loads(content))
    except ValueError as error:  # TOMLDecodeError, or a number with thousands of digits
        problems.append(_syntax_problem(file, str(error), content))
    except RecursionError:
        problems.append(_syntax_problem(file, "brackets nested too deep", content))
    return None


def file_text(file: Path, *, required: bool, problems: list[SettingsProblem]) -> str | None:
    """Return the text of the file, None where there is none or it cannot be used; append the reason to `problems`.

    A file that everybody may write is refused: whoever can write it chooses the model, the tools and the addresses that the
    agent trusts. A byte order mark is skipped, since editors on Windows write one.
    """
    found, allowed = "", "a TOML file"
    try:
        with file.open("rb") as stream:
            # One byte more than allowed tells a file that is too long, without a look at its size, which a device does not have.
            data = stream.read(MAX_FILE_BYTES + 1)
            # Of the open file, since the name may mean another one a moment later.
            mode = os.fstat(stream.fileno()).st_mode
        if len(data) > MAX_FILE_BYTES:
            found, allowed = f"more than {MAX_FILE_BYTES} bytes", "a smaller TOML file"
        elif stat.S_ISREG(mode) and mode & stat.S_IWOTH:  # /dev/null may be named, and is not at risk
            found, allowed = "a file that everybody may write", f"one that only you may write: chmod o-w {file}"
        else:
            return data.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if not required:
            return None
        found, allowed = "no such file", "a TOML file, as --config or PEGASUS_CONFIG names it"
    except IsADirectoryError:
        found = "a folder"
    except UnicodeDecodeError as error:
        found, allowed = f"a byte that is not UTF-8 at {error.start}", "a TOML file in UTF-8"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        found, allowed = f"a file that cannot be read ({reason})", "a readable TOML file"
    problems.append(SettingsProblem(str(file), "", found, allowed))
    return None


def _syntax_problem(file: Path, message: str, content: str) -> SettingsProblem:
    """Return the problem for an error of tomllib, which puts the place at the end: `… (at line 3, column 8)`.

    content: text of the file. The messages are part of Python and not promised; one of another form is shown as it is.
    """
    match = re.fullmatch(r"(.*) \(at (.*)\)", message, re.DOTALL)
    found, place = match.groups() if match else (message, "")
    if twice := _find_duplicate(place, content):
        return SettingsProblem(str(file), "", f"{twice}; leave one of them", "")
    advice = "; a text stands in quotes" if found == "Invalid value" else ""
    return SettingsProblem(str(file), place, f"{found[:1].lower()}{found[1:]}{advice}", "")


def _find_duplicate(place: str, content: str) -> str | None:
    """Return a sentence about a section or key that is declared twice, None if the line of the mistake declares none a second time.

    place: where tomllib noticed it, "line 3, column 8" or "end of document". People look for the first declaration: it is usually in
    the part of the file that they did not write themselves. The search is by line and may miss an unusual spelling; then the message
    of tomllib is shown.
    """
    lines = content.rstrip().splitlines()
    line = re.match(r"line (\d+)", place)
    second = min(int(line[1]), len(lines)) if line else len(lines)
    *earlier, (_, path) = _declared_paths(lines[:second]) or [((), ())]
    is_section = bool(header_path(lines[second - 1])) if lines else False
    for number, (section, before) in enumerate(earlier, 1):
        # A section may stand behind those below it, but not behind a key of its own that is written with dots.
        is_own = before == path or len(section) < len(path) if is_section else True
        if path and before[: len(path)] == path and is_own:
            name = f"[{'.'.join(path)}]" if is_section else lines[second - 1].partition("=")[0].strip()
            return f"`{name}` is declared twice, in lines {number} and {second}"
    return None


def _declared_paths(lines: list[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return for each line the section that it stands in, and the path that it declares, () for none. A head stands in itself."""
    section: tuple[str, ...] = ()
    paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for line in lines:
        section = header_path(line) or section
        key = _only_path(f"{line.partition('=')[0]} = 0") if "=" in line and not header_path(line) else None
        paths.append((section, header_path(line) or ((*section, *key) if key else ())))
    return paths


def header_path(line: str) -> tuple[str, ...] | None:
    """Return the path of a table's head, ("models", "routes") for `[models.routes]`, None for other lines."""
    return _only_path(line) if line.lstrip().startswith("[") else None


def _only_path(line: str) -> tuple[str, ...] | None:
    """Return the path of the one table or key that a line of TOML holds, None if it holds none."""
    try:
        table: Any = tomllib.loads(line)
    except ValueError:
        return None
    path: list[str] = []
    while isinstance(table, dict) and table:
        ((name, table),) = table.items()
        path.append(name)
    return tuple(path) or None


def without_replaced(content: str) -> str:
    """Return the text without the sections of `pegasus init` that are declared again further down.

    A recipe of the documentation can so be pasted at the end of the file that `pegasus init` has written, though it sets the same
    section: TOML allows each section once. Only sections with the mark BY_INIT give way. Lines are emptied and not removed, since
    error messages name the numbers of lines.
    """
    if BY_INIT not in content:
        return content
    lines = content.split("\n")
    heads = [(number, path) for number, line in enumerate(lines) if (path := header_path(line))]
    for index, (start, path) in enumerate(heads):
        if BY_INIT in lines[start] and any(path == other for _, other in heads[index + 1 :]):
            end = heads[index + 1][0]
            lines[start:end] = [""] * (end - start)
    return "\n".join(lines)


# ------------------------------------------------------------------ values outside a file


def toml_value(text: str) -> Any:
    """Return the text as a TOML value where it is one, else the text itself."""
    try:
        table = tomllib.loads(f"value = {text.strip()}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


# ------------------------------------------------------------------ variables

VARIABLE_FORMS: Final = "${VAR}, ${VAR:-default}, ${VAR:?message}, or $${ for a plain ${"
"""Allowed forms, for error messages."""
_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
"""An escaped `${`, or a variable: the text between the braces, and the closing one, which may be missing."""


class Interpolated(str):
    """Text that took something from the environment.

    Such a text may stand for another type, as `port = "${PORT}"` does: TOML has no way to write that without quotes.

    `interpolate` returns it, and `load` reads such a text as TOML where the key wants another type.

    Example: `interpolate("${PORT}", {"PORT": "7717"})` is an Interpolated; a text without variables comes back as it was.
    """

    __slots__ = ()


class InterpolationError(ValueError):
    """Broken or missing variable.

    Raised by `interpolate`. `load` makes a SettingsProblem of it, which names the key.

    Example: `interpolate("${KEY:?set your key}", {})` raises it, and `allowed` is "set your key".
    """

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(found)
        self.found = found
        """Value that stands there, as `SettingsProblem.found`."""
        self.allowed = allowed
        """Values that would be right; for `${VAR:?message}` the message."""


def interpolate(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with `${VAR}`, `${VAR:-default}` and `${VAR:?message}` filled in; `$${` stands for a plain `${`.

    As in a shell, a variable that is not set is empty, and `:-` and `:?` take effect where it is not set or empty. The
    value of a variable is taken as it is, and not interpolated again. Raises InterpolationError.

    Example::

        interpolate("https://${HOST:-localhost}/v1", {"HOST": "example.org"})  # https://example.org/v1
    """

    def fill(match: re.Match[str]) -> str:
        """Return what stands in place of one match. Raises InterpolationError."""
        inside, closed = match.groups()
        if inside is None:
            return "${"
        if not closed or "${" in inside:
            raise InterpolationError(f'"{text[match.start() :]}"', VARIABLE_FORMS)
        return _value(inside, environ)

    return Interpolated(_VARIABLE.sub(fill, text)) if "${" in text else text


def _value(inside: str, environ: Mapping[str, str]) -> str:
    """Return the value of one `${…}`; inside: the text between the braces."""
    name, colon, rest = inside.partition(":")
    if not (name.isascii() and name.isidentifier()) or (colon and rest[:1] not in ("-", "?")):
        raise InterpolationError(f'"${{{inside}}}"', VARIABLE_FORMS)
    value = environ.get(name, "")
    if value or not colon:
        return value
    if rest[0] == "-":
        return rest[1:]
    raise InterpolationError(f"${{{name}}} not set", rest[1:] or f"the environment variable {name} must be set")
