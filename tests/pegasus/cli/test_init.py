"""`pegasus init`."""

from __future__ import annotations

import io
import sys

import pytest

from pegasus.host import Home


@pytest.fixture
def home(user) -> Home:
    return Home(user / ".pegasus")


@pytest.fixture
def answer(monkeypatch):
    """answer(text): what the person types."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def everything(home) -> dict[str, bytes]:
    return {str(path.relative_to(home.path)): path.read_bytes() for path in home.path.rglob("*") if path.is_file()}


def test_a_new_home_has_everything(pegasus, home):
    code, out, err = pegasus("init")
    assert (code, err) == (0, "")
    assert set(everything(home)) == {"pegasus.toml", "token"}
    assert all(
        path.is_dir() for path in (home.data, home.skills, home.subagents, home.personas, home.workspace / "skills")
    )
    assert out.count("wrote ") == 2
    assert "Next: pegasus " in out


def test_the_settings_it_writes_are_good_and_all_defaults(pegasus, home):
    pegasus("init")
    assert pegasus("config", "check")[0] == 0


def test_the_next_step_leads_to_the_same_home(pegasus, user):
    assert "Next: pegasus --profile work " in pegasus("--profile", "work", "init")[1]
    assert f"Next: pegasus --home '{user}/a b' " in pegasus("init", "--home", f"{user}/a b")[1]


def test_yes_adds_what_is_missing_and_overwrites_nothing(pegasus, home):
    pegasus("init")
    home.config.write_text("[gateway]\nport = 1\n")
    home.token.unlink()
    before = everything(home)
    code, out, _ = pegasus("init", "--yes")
    after = everything(home)
    assert code == 0
    assert set(after) - set(before) == {"token"}
    assert {name: after[name] for name in before} == before
    assert out.count("wrote ") == 1


def test_it_asks_before_it_overwrites(pegasus, home, answer):
    pegasus("init")
    original = home.config.read_bytes()
    home.config.write_text("[gateway]\nport = 1\n")
    answer("n\n")
    assert pegasus("init")[1].count("is there already. Overwrite it?") == 1
    assert home.config.read_text() == "[gateway]\nport = 1\n"
    answer("y\n")
    assert pegasus("init")[0] == 0
    assert home.config.read_bytes() == original


def test_every_file_it_writes_is_read_by_the_agent(pegasus, home):
    """A file that nobody reads would look as if it had an effect."""
    pegasus("init")
    assert set(everything(home)) == {"pegasus.toml", "token"}


def test_a_recipe_can_be_appended_to_the_settings_it_writes(pegasus, home):
    pegasus("init")
    with home.config.open("a") as file:
        file.write(
            '[models]\ndefault = "lab/x"\n[providers.lab]\ntype = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n'
        )
    assert pegasus("config", "check") == (0, f"{home.config}: ok\n", "")


def test_no_answer_overwrites_nothing(pegasus, home, answer):
    pegasus("init")
    home.config.write_text("[gateway]\nport = 1\n")
    answer("")
    code, _, _ = pegasus("init")
    assert code == 130
    assert home.config.read_text() == "[gateway]\nport = 1\n"


def test_unchanged_files_are_not_asked_about(pegasus, answer):
    pegasus("init")
    answer("")
    assert pegasus("init")[0] == 0


def test_the_token_is_never_overwritten(pegasus, home, answer):
    pegasus("init")
    token = home.token.read_text()
    answer("y\n" * 20)
    pegasus("init")
    assert home.token.read_text() == token


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("ANTHROPIC_API_KEY", "Model: anthropic/"),
        ("OPENAI_API_KEY", "Model: openai/"),
        ("X", "Model: a stand-in, since neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set."),
    ],
)
def test_it_says_which_model_was_chosen_and_why(pegasus, monkeypatch, variable, words):
    monkeypatch.setenv(variable, "sk-hidden")
    out = pegasus("init")[1]
    assert words in out
    assert "hidden" not in out


def test_a_model_named_in_the_settings_is_the_one(pegasus, home):
    assert "Model: openai/x, as models.default says." in pegasus("init", "--set", "models.default=openai/x")[1]


def test_a_home_that_cannot_be_made_is_one_line(pegasus):
    code, out, err = pegasus("init", "--home", "/proc/none")
    assert (code, out, err.count("\n")) == (78, "", 1)


def test_settings_elsewhere_are_written_there(pegasus, user, home):
    pegasus("init", "--config", str(user / "etc" / "pegasus.toml"))
    assert (user / "etc" / "pegasus.toml").exists()
    assert not home.config.exists()
