"""Changing one key of the settings file: everything else stays as it is, and what cannot be done safely is not done."""

from __future__ import annotations

import tomllib

import pytest

from pegasus.settings import EditError, parse_key, parse_value, set_key, unset_key
from pegasus.settings.sources import BY_INIT

FILE = """\
# what this machine has
[gateway]   # the door
port = 1    # one
host = "::1"

# about logs
[log]
level = "info"
"""


def change(content: str, key: str, value: str) -> str:
    path = parse_key(key)
    return set_key(content, path, parse_value(path, value))


def test_only_the_value_changes():
    assert change(FILE, "gateway.port", "7718") == FILE.replace("port = 1 ", "port = 7718 ")


def test_a_new_key_stands_behind_the_last_one_of_its_section():
    assert change(FILE, "gateway.allow_remote", "true") == FILE.replace('"::1"\n', '"::1"\nallow_remote = true\n')


def test_a_new_section_stands_at_the_end():
    assert change(FILE, "models.default", "ollama/x") == f'{FILE}\n[models]\ndefault = "ollama/x"\n'


def test_an_empty_file_gets_a_section():
    assert change("", "models.default", "ollama/x") == '[models]\ndefault = "ollama/x"\n'


def test_names_with_dots_are_quoted():
    text = change("", 'prices."openai/gpt-4.1".input', "2.5")
    assert text == '[prices."openai/gpt-4.1"]\ninput = 2.5\n'


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("models.default", "ollama/x", "ollama/x"),
        ("models.default", '"ollama/x"', "ollama/x"),
        ("agent.persona", "true", "true"),
        ("gateway.port", "7718", 7718),
        ("gateway.port", "${PORT:-7718}", "${PORT:-7718}"),
        ("gateway.allow_remote", "true", True),
        ("models.timeout", "90", 90),
        ("models.fallback", '["a/b", "c/d"]', ["a/b", "c/d"]),
        ("tools.timeouts.shell_exec", "5", 5),
        ("providers.lab.headers", '{ A = "b" }', {"A": "b"}),
        ("gateway.port", "many", "many"),
    ],
)
def test_a_value_has_the_type_that_its_key_wants(key, text, value):
    path = parse_key(key)
    found: object = tomllib.loads(set_key("", path, parse_value(path, text)))
    for name in path:
        assert isinstance(found, dict)
        found = found[name]
    assert (found, type(found)) == (value, type(value))


def test_a_whole_section_is_replaced():
    text = change('[models.routes.a]\nmodel = "x/y"\nmedia = "image"\n', "models.routes.a", '{ model = "q/r" }')
    assert tomllib.loads(text) == {"models": {"routes": {"a": {"model": "q/r"}}}}


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("gateway.prot", "gateway.port"),
        ("models.defualt", "models.default"),
        ("port", "gateway.port"),
        ("providers.lab.api_kye", "providers.lab.api_key"),
        ("models.options.a/b", "quoted"),
        ("nonsense", "config keys"),
    ],
)
def test_an_unknown_key_suggests_near_ones(key, near):
    with pytest.raises(EditError) as caught:
        parse_key(key)
    assert near in str(caught.value)


@pytest.mark.parametrize("key", ["", "a..b", "a = 1", ".", "models.default\n", '"', "[models]"])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(EditError):
        parse_key(key)


def test_a_key_is_removed_with_nothing_else():
    assert unset_key(FILE, parse_key("gateway.host")) == FILE.replace('host = "::1"\n', "")


def test_a_section_is_removed():
    text = unset_key(FILE, parse_key("log"))
    assert tomllib.loads(text) == {"gateway": {"port": 1, "host": "::1"}}


@pytest.mark.parametrize("key", ["gateway.token", "models.default", "providers.lab.api_key"])
def test_removing_what_is_not_there_changes_nothing(key):
    assert unset_key(FILE, parse_key(key)) == FILE


@pytest.mark.parametrize(
    "content",
    [
        'models.default = "a/b"\n',
        'models = { default = "a/b", effort = "low" }\n',
        "[models]\r\ndefault = 'a/b' # c\r\n",
        '[models.routes.a]\nmodel = "x/y"\n\n[log]\nlevel = "info"\n\n[models.routes.b]\nmodel = "x/y"\n',
        '[models]\nchoices = [\n  "a/b", # one\n\n  "c/d",\n]\n',
        '[log]\nlevel = """info"""\n[models]\n# nothing yet\n',
    ],
)
def test_unusual_layouts_keep_what_they_hold(content):
    wanted = tomllib.loads(content)
    wanted.setdefault("models", {})["default"] = "new/model"
    assert tomllib.loads(change(content, "models.default", "new/model")) == wanted


def test_a_section_of_init_gives_way_to_one_that_is_pasted_below(load):
    text = set_key("", ("models", "default"), "ollama/x", by_init=True)
    text = set_key(text, ("providers", "openai", "api_key"), "k", by_init=True)
    recipe = '\n[models]\ndefault = "lab/y"\n[providers.lab]\ntype = "openai"\nbase_url = "http://localhost:1/v1"\n'
    settings = load(text + recipe)
    assert settings.models.default == "lab/y"
    assert settings.providers["openai"].api_key == "k"
    assert load(change(text + recipe, "models.effort", "low")).models.default == "lab/y"


def test_other_sections_do_not_give_way(mistakes):
    text = f'[models]\ndefault = "a/b"\n# {BY_INIT}\n[models]\ndefault = "c/d"\n'
    assert mistakes(text) == ["pegasus.toml: `[models]` is declared twice, in lines 1 and 4; leave one of them"]


def test_a_file_with_tables_too_deep_for_a_command_is_left_to_its_author():
    with pytest.raises(EditError, match="change it by hand"):
        change(f"[{'.'.join(['a'] * 5000)}]\n", "log.level", "debug")
