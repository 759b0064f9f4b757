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
    """answer(*lines): the lines that the person types; after them, Enter to the questions about the outside.

    Without `rest` the input ends behind the lines.
    """

    def answer(*lines, rest=("", "")):
        monkeypatch.setattr(sys, "stdin", Person("".join(f"{line}\n" for line in (*lines, *rest))))

    monkeypatch.setattr("click.termui.hidden_prompt_func", input)
    return answer


@pytest.fixture(autouse=True)
def no_local_models(monkeypatch):
    """No server of this machine is looked for."""

    async def find(base_urls):
        return LOCAL

    monkeypatch.setattr("pegasus.models.providers.offers.find_local_models", find)
    LOCAL.clear()


@pytest.fixture(autouse=True)
def services(monkeypatch):
    """Installations of a service that were asked for; systemd does not answer until `services.append("systemd")`."""
    services = []

    def install(options, *, only_print, yes):
        services.append("installed")
        return 0

    monkeypatch.setattr("pegasus.cli.init.can_install", lambda: "systemd" in services)
    monkeypatch.setattr("pegasus.cli.init.run_install", install)
    for name in ("TAVILY_API_KEY", "BRAVE_API_KEY", "SEARXNG_BASE_URL", "TELEGRAM_BOT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return services


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


# ------------------------------------------------------------------ the model, its key, and who you are


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

    async def refuses(base_url, key):
        return False

    monkeypatch.setattr("pegasus.models.providers.offers.describe_models", describe)
    monkeypatch.setattr("pegasus.models.providers.offers.refuses_key", refuses)
    return keys


def test_the_address_of_a_server_leads_to_its_models(pegasus, home, answer, server):
    answer("http://nobody:1", "http://lab:1/", "", "", "", "n")
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
    answer("1", "", "", "n")
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
    answer(*typed, rest=())
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
    answer("lab/x", "", "", "y", "y", "offline/stand-in", "y")
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


# ------------------------------------------------------------------ a server that wants a key


@pytest.fixture
def locked(monkeypatch):
    """A server at http://lab:1/v1 that tells its models to those who show sk-lab, or `tells_all`; the test call wants the key."""

    class Locked:
        tells_all = False
        asked: list[str]

    locked = Locked()
    locked.asked = []

    async def describe(provider, base_url, is_ollama, *, key=""):
        there = base_url == "http://lab:1/v1" and (locked.tells_all or key == "sk-lab")
        return [LocalModel(provider, "echo", "", base_url)] if there else []

    async def refuses(base_url, key):
        return base_url == "http://lab:1/v1" and key != "sk-lab"

    async def call(settings):
        provider = settings.models.default.partition("/")[0]
        locked.asked.append(settings.providers[provider].api_key)
        return None if locked.asked[-1] == "sk-lab" else "auth"

    monkeypatch.setattr("pegasus.models.providers.offers.describe_models", describe)
    monkeypatch.setattr("pegasus.models.providers.offers.refuses_key", refuses)
    monkeypatch.setattr("pegasus.cli.init._test_call", call)
    return locked


def test_a_server_that_tells_nothing_without_a_key_is_asked_again_with_one(pegasus, home, answer, locked):
    answer("http://lab:1", "sk-wrong", "http://lab:1", "sk-lab", "", "", "", "y")
    code, out, _ = pegasus("init")
    assert code == 0
    assert out.count("This server wants a key") == 2
    assert "The key was refused." in out
    assert locked.asked == ["sk-lab"]
    assert 'api_key = "sk-lab"' in lines(home)
    assert "sk-lab" not in out


def test_a_server_that_tells_its_models_and_refuses_the_call_gets_a_key(pegasus, home, answer, locked):
    locked.tells_all = True
    answer("http://lab:1", "", "", "", "y", "y", "server/echo", "sk-lab", "y")
    code, out, _ = pegasus("init")
    assert code == 0
    assert "2. API key of server (Enter if it wants none)" in out
    assert locked.asked == ["", "sk-lab"]
    assert 'api_key = "sk-lab"' in lines(home)


# ------------------------------------------------------------------ the web, chat services, the service


def test_enter_keeps_the_keyless_search_and_no_chat_service(pegasus, home, answer):
    answer("", "", "n")
    out = pegasus("init")[1]
    assert "5. Which service searches the web? duckduckgo (no key)" in out
    assert "[duckduckgo]" in out
    assert "6. Reach it from a chat service, too? telegram, slack, sms (Enter: not now)" in out
    assert lines(home) == []


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        (["tavily", "tvly-1"], ['provider = "tavily"', 'api_key = "tvly-1"']),
        (["brave", "", "none"], ['provider = "none"']),
        (["searxng", "http://searx:8"], ['provider = "searxng"', 'base_url = "http://searx:8"']),
        (["https://searx.example"], ['provider = "searxng"', 'base_url = "https://searx.example"']),
        (["searxng", "searx", "google", "duckduckgo"], []),
    ],
)
def test_a_service_that_searches_the_web(pegasus, home, answer, typed, written):
    answer("", "", "n", *typed, rest=("",))
    code, out, _ = pegasus("init")
    assert code == 0
    assert [line.partition("  #")[0] for line in lines(home)] == (["[tools.web_search]", *written] if written else [])
    assert "tvly-1" not in out
    assert pegasus("config", "check")[0] == 0


def test_another_search_service_gets_nothing_of_the_one_before(pegasus, home, answer):
    home.path.mkdir()
    home.config.write_text('[tools.web_search]\nprovider = "tavily"\napi_key = "tvly-1"\n')
    answer("", "", "n", "http://searx:8", rest=("",))
    assert pegasus("init")[0] == 0
    assert "tvly" not in home.config.read_text()


def test_a_search_key_in_the_environment_is_found_and_not_written(pegasus, home, answer, monkeypatch):
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-hidden")
    answer("", "", "n", "")
    out = pegasus("init")[1]
    assert "[tavily]" in out
    assert lines(home) == []


def test_the_first_chat_service(pegasus, home, answer):
    answer("", "", "n", "", "discord", "telegram", "", "telegram", "123:abc", rest=())
    code, out, _ = pegasus("init")
    assert code == 0
    assert "allowed: telegram, slack, sms" in out
    assert "Without it telegram cannot be used." in out
    assert "pegasus pair approve CODE" in out
    assert "123:abc" not in out
    written = [line.partition("  #")[0] for line in lines(home)]
    assert written == ["[channels.telegram]", "enabled = true", 'bot_token = "123:abc"']
    assert pegasus("config", "check")[0] == 0
    answer("", "", "n", "", "telegram", "", rest=())
    assert "(Enter: only telegram, as now)" in pegasus("init")[1]
    assert [line.partition("  #")[0] for line in lines(home)] == written


def test_a_token_in_the_environment_is_not_asked_for(pegasus, home, answer, monkeypatch):
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "123:hidden")
    answer("", "", "n", "", "telegram", rest=())
    code, out, _ = pegasus("init")
    assert (code, "found in TELEGRAM_BOT_TOKEN" in out) == (0, True)
    assert "hidden" not in home.config.read_text()


def test_slack_and_sms_ask_for_all_that_they_need(pegasus, home, answer):
    answer("", "", "n", "", "slack", "xoxb-1", "xapp-1", rest=())
    assert pegasus("init")[0] == 0
    answer("", "", "n", "", "sms", "AC1", "t", "nonsense", "sms", "AC1", "t", "+15550100", rest=("",) * 9)
    pegasus("init")
    text = home.config.read_text()
    assert all(value in text for value in ('"xoxb-1"', '"xapp-1"'))


def test_a_service_is_offered_where_one_can_be_had_and_only_with_a_yes_installed(pegasus, home, answer, services):
    services.append("systemd")
    answer("", "", "n", "", "", "", rest=())
    assert "7. Run it as a service, now and at each sign-in?" in pegasus("init")[1]
    assert services == ["systemd"]
    answer("", "", "n", "", "", "y", rest=())
    assert pegasus("init")[0] == 0
    assert services == ["systemd", "installed"]
    assert pegasus("init", "--yes")[0] == 0
    assert services == ["systemd", "installed"]
