"""Whatever stands in a file, a variable or an option: settings, or a SettingsError, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pegasus.settings import Settings, SettingsError, SettingsSource, load_settings
from pegasus.settings.load import leaves
from pegasus.settings.render import as_toml, effective

KEYS = st.sampled_from([*leaves(Settings()), "mcp.servers.x.env.A", "providers.x.type", "no.key"])
TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=20) | st.sampled_from(
    ["${A}", "${", "$${", "${B:?}"]
)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def loads(source: SettingsSource, environ: dict[str, str]) -> None:
    try:
        settings = load_settings(source, environ)
    except SettingsError as caught:
        error = caught
    else:
        effective(settings)
        return
    assert error.problems
    assert all(str(problem).isprintable() for problem in error.problems)


@given(st.dictionaries(KEYS | TEXTS.map(as_toml), VALUES, max_size=4))
def test_any_values_in_a_file(values):
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_text("\n".join(f"{key} = {as_toml(value)}" for key, value in values.items()), "utf-8")
        loads(SettingsSource(Path(file.name)), {"A": "1"})


@given(st.binary(max_size=200))
def test_any_bytes_in_a_file(content):
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_bytes(content)
        loads(SettingsSource(Path(file.name)), {})


@given(KEYS, TEXTS | VALUES.map(as_toml))
def test_any_text_in_a_variable_or_option(key, text):
    loads(SettingsSource(overrides=(f"{key}={text}",)), {})
    loads(SettingsSource(), {"PEGASUS__" + key.replace(".", "__"): text})


def test_a_number_with_thousands_of_digits():
    loads(SettingsSource(overrides=(f"gateway.port={'9' * 10000}",)), {})
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_text(f"[gateway]\nport = {'9' * 10000}\n")
        loads(SettingsSource(Path(file.name)), {})
