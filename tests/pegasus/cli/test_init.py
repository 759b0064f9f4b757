"""`pegasus init`."""

from __future__ import annotations

import io
import os
import sys

import pytest

from pegasus.host import Home
from pegasus.models.providers import LocalModel


@pytest.fixture
def home(user) -> Home:
    return Home(user / ".pegasus")


class Person(io.StringIO):
    """Somebody at a terminal who types these lines."""

    def isatty(self):
        return True


@pytest.fixture
def answer(monkeypatch):
    """answer(*lines): the lines that the person types; after them, the end of the input."""

    def answer(*lines):
        monkeypatch.setattr(sys, "stdin", Person("".join(f"{line}\n" for line in lines)))

    monkeypatch.setattr("click.termui.hidden_prompt_func", input)
    return answer


@pytest.fixture(autouse=True)
def no_local_models(monkeypatch):
    """No server of this machine is looked for."""

    async def find(base_urls):
        return LOCAL

    monkeypatch.setattr("pegasus.models.providers.offers.find_local_models", find)
    LOCAL.clear()


LOCAL: list[LocalModel] = []


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


def test_the_token_is_never_overwritten(pegasus, home, answer):
    pegasus("init")
    token = home.token.read_text()
    answer("", "", "", "n")
    assert pegasus("init")[0] == 0
    assert home.token.read_text() == token


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("ANTHROPIC_API_KEY", "Model: anthropic/"),
        ("OPENAI_API_KEY", "Model: openai/"),
        ("X", "Model: a local one if a server is running at the start, else a stand-in"),
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


# ------------------------------------------------------------------ four questions


def lines(home) -> list[str]:
    return [line for line in home.config.read_text().splitlines() if line and not line.startswith("#")]


def test_the_file_it_writes_is_short(pegasus, home, answer):
    answer("openai/gpt-6.1-terra", "sk-typed-12345", "Ada, German", "n")
    code, out, _ = pegasus("init")
    assert code == 0
    assert len(home.config.read_text().splitlines()) <= 12
    assert [line.partition("  #")[0] for line in lines(home)] == [
        "[models]",
        'default = "openai/gpt-6.1-terra"',
        "[providers.openai]",
        'api_key = "sk-typed-12345"',
    ]
    assert home.config.stat().st_mode & 0o777 == 0o600
    assert (home.workspace / "USER.md").read_text() == "Ada, German\n"
    assert "sk-typed" not in out
    assert pegasus("config", "check")[0] == 0


def test_a_key_in_the_environment_is_found_and_not_written(pegasus, home, answer, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-hidden")
    answer("", "", "n")
    out = pegasus("init")[1]
    assert "1  anthropic/" in out
    assert "2. API key: found in ANTHROPIC_API_KEY" in out
    assert "hidden" not in home.config.read_text()


def test_local_models_are_offered(pegasus, home, answer):
    LOCAL.append(LocalModel("ollama", "qwen3:8b", "Ollama", "http://localhost:11434", 40_960))
    answer("", "", "n")
    out = pegasus("init")[1]
    assert "1  ollama/qwen3:8b   (Ollama on this machine, 40,960 tokens)" in out
    assert "2. API key: none needed" in out
    assert lines(home)[1] == 'default = "ollama/qwen3:8b"'


@pytest.fixture
def server(monkeypatch):
    """A server of one's own at http://lab:1/v1 with the model echo; the keys that it was asked with."""
    keys = []

    async def describe(provider, base_url, is_ollama, *, key=""):
        keys.append(key)
        return [LocalModel(provider, "echo", "", base_url)] if base_url == "http://lab:1/v1" else []

    monkeypatch.setattr("pegasus.models.providers.offers.describe_models", describe)
    return keys


def test_the_address_of_a_server_leads_to_its_models(pegasus, home, answer, server):
    answer("http://nobody:1", "http://lab:1/", "", "", "n")
    out = pegasus("init")[1]
    assert "No server in OpenAI's format tells its models there." in out
    assert "server/echo   (at http://lab:1/v1)" in out
    assert [line.partition("  #")[0] for line in lines(home)] == [
        "[models]",
        'default = "server/echo"',
        "[providers.server]",
        'type = "openai"',
        'base_url = "http://lab:1/v1"',
    ]
    assert pegasus("config", "check")[0] == 0


def test_models_of_a_server_in_the_settings_are_offered(pegasus, home, answer, server):
    home.path.mkdir()
    home.config.write_text('[providers.lab]\ntype = "openai"\nbase_url = "http://lab:1/v1"\napi_key = "sk-lab"\n')
    answer("1", "", "n")
    assert "1  lab/echo   (at http://lab:1/v1)" in pegasus("init")[1]
    assert 'default = "lab/echo"' in home.config.read_text()
    assert server == ["sk-lab"]


def test_without_any_model_the_stand_in_is_the_default_answer(pegasus, home, answer):
    answer("", "", "y")
    out = pegasus("init")[1]
    assert "It answered in" in out
    assert lines(home) == [], "a key that is set later must count"


def test_running_it_again_offers_what_is_there(pegasus, home, answer):
    answer("openai/gpt-6.1-terra", "sk-typed-12345", "Ada", "n")
    pegasus("init")
    before = everything(home)
    answer("", "", "", "n")
    out = pegasus("init")[1]
    assert "(Enter keeps the present one)" in out
    assert '(Enter keeps "Ada")' in out
    assert everything(home) == before


def test_what_a_person_has_written_stays(pegasus, home, answer):
    home.path.mkdir()
    home.config.write_text("# mine\n[gateway]\nport = 1  # one\n")
    home.workspace.mkdir()
    (home.workspace / "USER.md").write_text("# Ada\n\nMetric units.\n")
    answer("openai/gpt-6.1-terra", "sk-typed-12345", "Lives in Rome.", "n")
    pegasus("init")
    assert home.config.read_text().startswith("# mine\n[gateway]\nport = 1  # one\n\n[models]")
    assert (home.workspace / "USER.md").read_text() == "# Ada\n\nMetric units.\n\nLives in Rome.\n"


@pytest.mark.parametrize("typed", [(), ("openai/gpt-6.1-terra",), ("openai/x", "sk-1"), ("openai/x", "sk-1", "Ada")])
def test_ending_it_early_leaves_nothing(pegasus, home, answer, typed):
    answer(*typed)
    assert pegasus("init")[0] == 130
    assert not home.path.exists()


def test_words_in_another_encoding_are_written_with_replacements(pegasus, home, answer):
    """A terminal with Latin-1, say: Python reads what is no UTF-8 as halves of surrogate pairs."""
    answer("offline/stand-in", "J\udcfcrgen", "n")
    assert pegasus("init")[0] == 0
    assert (home.workspace / "USER.md").read_text() == "J\ufffdrgen\n"


def test_a_key_in_another_encoding_is_asked_for_again(pegasus, home, answer, monkeypatch):
    answer("openai/gpt-6.1-terra", "offline/stand-in", "", "n")

    def hidden(question):
        raise UnicodeDecodeError("utf-8", b"sk-\xff", 3, 4, "invalid start byte")

    monkeypatch.setattr("click.termui.hidden_prompt_func", hidden)
    code, out, _ = pegasus("init")
    assert code == 0
    assert "That does not work: providers.openai.api_key: found bytes that are no text, allowed: UTF-8" in out


def test_a_model_that_cannot_work_is_asked_for_again(pegasus, home, answer):
    answer("nobody/x", "openai/gpt-6.1-terra", "", "9", "offline/stand-in", "", "n")
    out = pegasus("init")[1]
    assert 'found "nobody/x"' in out
    assert "has no key" in out
    assert out.count("That does not work") == 3


def test_a_failed_test_call_shows_the_error_and_asks_again(pegasus, home, answer):
    home.path.mkdir()
    home.config.write_text(
        '[providers.lab]\ntype = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n[models]\ntimeout = 1\n'
    )
    answer("lab/x", "", "y", "y", "offline/stand-in", "y")
    out = pegasus("init")[1]
    assert "It failed: " in out
    assert "It answered in" in out
    assert 'default = "offline/stand-in"' in home.config.read_text()


def test_a_recipe_can_be_pasted_below_its_answers(pegasus, home, answer):
    answer("openai/gpt-6.1-terra", "sk-typed-12345", "", "n")
    pegasus("init")
    with home.config.open("a") as file:
        file.write(
            '[models]\ndefault = "lab/x"\n[providers.lab]\ntype = "openai"\nbase_url = "http://127.0.0.1:1/v1"\n'
        )
    assert pegasus("config", "check") == (0, f"{home.config}: ok\n", "")
    assert "Model: lab/x" in pegasus("init", "--yes")[1]


def test_without_a_terminal_nothing_is_asked(pegasus, home, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert pegasus("init")[0] == 0
    assert home.config.exists()


def test_texts_are_wrapped_between_words_on_a_terminal(pegasus, home, answer, monkeypatch):
    monkeypatch.setattr("pegasus.cli.init.shutil.get_terminal_size", lambda: os.terminal_size((60, 24)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    answer("", "", "n")
    code, out, _ = pegasus("init")
    assert code == 0
    assert "3. Who are you? Name, language, time zone, how you like\nanswers (Enter to skip): " in out
    assert (
        "Model: a local one if a server is running at the start,\nelse a stand-in that answers by fixed rules." in out
    )
