"""The commented file of `pegasus init`, what `config show` prints, and the page of documentation."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from pegasus.settings import ProviderSettings, Settings
from pegasus.settings.channel_sections import SERVICE_SECTIONS, ChannelSettings
from pegasus.settings.keys import Section, keys_of
from pegasus.settings.load import changed_keys, leaves
from pegasus.settings.render import as_toml, commented_file, effective
from pegasus.settings.tool_sections import McpServerSettings

PAGE = Path(__file__).parents[3] / "docs" / "user" / "settings.md"


def uncommented() -> str:
    """The file of init with all keys in force, but for sections that exist only where somebody has written them."""
    lines = [line.removeprefix("# ") for line in commented_file().splitlines() if line.startswith("# ")]
    text = "\n".join(lines[lines.index("[run]") :])
    sections = text.split("\n[")
    written = ("NAME]", "PROVIDER/MODEL", *(f"channels.{name}]" for name in SERVICE_SECTIONS))
    return "\n[".join(section for section in sections if not any(name in section for name in written))


def test_the_commented_file_changes_nothing(load):
    assert tomllib.loads(commented_file()) == {}
    assert changed_keys(load(commented_file()), Settings()) == ()


def test_the_commented_file_says_exactly_the_defaults(load):
    assert changed_keys(load(uncommented()), Settings()) == ()


def test_the_commented_file_has_every_key():
    table = tomllib.loads(uncommented())
    for key, value in leaves(Settings()).items():
        if key.startswith("providers.") and not key.startswith(("providers.anthropic", "providers.openai.")):
            continue
        found = table
        for name in key.split("."):
            found = found[name]
        if not key.startswith("providers."):
            assert found == (list(value) if isinstance(value, tuple) else value), key


def test_a_section_of_the_documentation_can_be_appended(load):
    text = commented_file() + '[models]\ndefault = "anthropic/x"\n[providers.anthropic]\napi_key = "k"\n'
    assert load(text).models.default == "anthropic/x"


def test_the_commented_file_takes_the_keys_of_the_environment(load):
    for text in (commented_file(), uncommented()):
        assert load(text, {"ANTHROPIC_API_KEY": "k"}).providers["anthropic"].api_key == "k"


def test_what_is_shown_can_be_read_back(load):
    settings = load('[models]\nfallback = ["openai/x"]\n[tools.timeouts]\na = 1\n', {"PEGASUS__GATEWAY__PORT": "5"})
    assert changed_keys(load(effective(settings)), settings) == ()


def test_secrets_are_masked(load):
    text = '[gateway]\ntoken = "http://t0ken-0123456789"\n[mcp.servers.x]\nenabled = false\ncommand = "c"\nenv = { A = "hidden" }\n'
    shown = effective(
        load(text, {"KEY": "sk-1"}, ["providers.openai.api_key=${KEY}", "providers.openai.base_url=https://u:pw@h/v1"])
    )
    assert not [secret for secret in ("t0ken", "hidden", "sk-1", "pw@") if secret in shown]
    assert 'base_url = "https://***@h/v1"  # --set' in shown
    assert 'env = { "A" = "***" }' in shown


def test_known_services_are_shown_only_where_something_is_set(load):
    shown = effective(load(environ={"GROQ_API_KEY": "k"}))
    assert "[providers.groq]" in shown
    assert "[providers.mistral]" not in shown


def test_an_empty_secret_is_shown_as_empty(load):
    assert 'token = ""\n' in effective(load())


def test_values_that_are_no_defaults_say_where_they_come_from(load):
    shown = effective(
        load('[log]\nlevel = "debug"\nformat = "line"\n', {"PEGASUS__GATEWAY__PORT": "5"}, ["run.shutdown_grace=1"])
    )
    assert "shutdown_grace = 1.0  # --set" in shown
    assert "port = 5  # PEGASUS__GATEWAY__PORT" in shown
    assert shown.endswith('pegasus.toml\nformat = "line"')


# ------------------------------------------------------------------ docs/user/settings.md


def _sections() -> list[tuple[str, type, object]]:
    defaults = Settings()
    found = [
        ("providers.NAME", ProviderSettings, ProviderSettings()),
        ("mcp.servers.NAME", McpServerSettings, McpServerSettings()),
    ]
    found += [
        ("channels.cli", ChannelSettings, defaults.channels["cli"]),
        ("channels.NAME", ChannelSettings, ChannelSettings()),
        *((f"channels.{name}", cls, cls()) for name, cls in SERVICE_SECTIONS.items()),
    ]
    for name, rule in keys_of(Settings).items():
        if isinstance(rule, Section) and name not in ("providers", "mcp", "channels"):
            found.append(_described(name, rule, getattr(defaults, name)))
            inner = {key: each for key, each in keys_of(rule.cls).items() if isinstance(each, Section)}
            found += [_described(f"{name}.{key}", each, getattr(found[-1][2], key)) for key, each in inner.items()]
    return found


def _described(path: str, rule: Section, default: object) -> tuple[str, type, object]:
    if not rule.named:
        return path, rule.cls, default
    return path + ('."PROVIDER/MODEL"' if rule.models else ".NAME"), rule.cls, rule.cls()


@pytest.mark.parametrize(
    ("path", "cls", "default"), _sections(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_page_names_every_key_with_its_default_and_what_it_may_hold(path, cls, default):
    parts = {part.splitlines()[0]: part for part in PAGE.read_text().split("\n## ")}
    own, shared = parts[f"`[{path}]`"], parts["`[channels.NAME]`"] if path.startswith("channels.") else ""
    of_all = ChannelSettings()
    for name, rule in keys_of(cls).items():
        if isinstance(rule, Section):
            continue
        is_shared = hasattr(of_all, name) and getattr(of_all, name) == getattr(default, name)
        section = shared if shared and is_shared else own
        allowed = rule.allowed if rule.each is None else f"a table, each value {rule.each.allowed}"
        marks = (" Secret." if rule.secret else "") + (" Needs a restart." if rule.restart else "")
        meaning = f"{rule.doc}.{marks}"
        assert f"| `{name}` | {allowed} | `{as_toml(getattr(default, name))}` | {meaning} |" in section


def test_the_page_names_every_channel():
    page = PAGE.read_text()
    assert all(f"`[channels.{name}]`" in page for name in Settings().channels)


def test_the_mistakes_on_the_page_are_told_like_this(mistakes):
    lines = mistakes("[gateway]\nprot = 1\n", {"PEGASUS__MODELS__TIMEOUT": "soon"})
    page = PAGE.read_text().replace("/home/ann/.pegasus/", "")
    assert all(line in page for line in lines)
