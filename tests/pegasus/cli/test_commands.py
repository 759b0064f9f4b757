"""Options, exit codes, and how errors are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

import pegasus.app
import pegasus.cli.chat
from pegasus import __version__
from pegasus.host import HomeBusy
from pegasus.observe import configure_logging


@pytest.fixture
def daemon(monkeypatch):
    """Stands in for the daemon; `calls` has what it was started with."""
    calls = []

    def run_daemon(home, settings, probe, *, trial_of):
        calls.append((home, settings, False))
        return 0

    def run_with_chat(home, settings, options):
        calls.append((home, settings, True))
        return 0

    monkeypatch.setattr(pegasus.app, "run_daemon", run_daemon)
    monkeypatch.setattr(pegasus.cli.chat, "run_with_chat", run_with_chat)
    return calls


@pytest.fixture
def failing(monkeypatch):
    """failing(error): a daemon that ends with it."""

    def failing(error):
        def run_daemon(home, settings, probe, *, trial_of):
            raise error

        monkeypatch.setattr(pegasus.app, "run_daemon", run_daemon)

    return failing


# ------------------------------------------------------------------ which command


def test_without_a_command_the_daemon_runs(pegasus, daemon, user):
    assert pegasus()[0] == 0
    ((home, settings, _),) = daemon
    assert home.path == user / ".pegasus"
    assert settings.gateway.port == 7717


@pytest.mark.parametrize(
    ("args", "terminal", "with_cli"),
    [
        ([], True, True),
        (["run"], True, True),
        (["run", "--no-cli"], True, False),
        ([], False, False),
        (["run"], False, False),
        (["run", "--set", "channels.cli.enabled=false"], True, False),
    ],
)
def test_a_chat_is_opened_if_stdin_is_a_terminal_and_nobody_objects(
    pegasus, daemon, monkeypatch, args, terminal, with_cli
):
    monkeypatch.setattr(os, "isatty", lambda descriptor: terminal and descriptor == 0)
    pegasus(*args)
    assert daemon[0][2] is with_cli


@pytest.mark.parametrize(("args", "code"), [((), 0), (("run",), 78)])
def test_a_running_agent_is_joined_although_its_settings_file_has_mistakes(
    pegasus, daemon, user, monkeypatch, args, code
):
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 0)
    run = user / ".pegasus" / "run"
    run.mkdir(parents=True)
    (run / "daemon.json").write_text(
        json.dumps({"pid": os.getpid(), "ws": "ws://127.0.0.1:1", "http": None, "version": "0", "startedAt": 0})
    )
    (user / ".pegasus" / "pegasus.toml").write_text("[agent\n")
    found, _, err = pegasus(*args)
    assert found == code
    assert [with_cli for _, _, with_cli in daemon] == ([True] if code == 0 else [])
    assert ("the running agent goes on with the settings it has" in err) == (code == 0)


def test_the_daemons_exit_code_is_the_commands(pegasus, monkeypatch):
    monkeypatch.setattr(pegasus_app(), "run_daemon", lambda *_, **__: 70)
    assert pegasus("run")[0] == 70


def pegasus_app():
    return sys.modules["pegasus.app"]


@pytest.mark.parametrize("where", ["before", "after"])
def test_global_options_may_stand_before_and_after_the_command(pegasus, daemon, where):
    options = ["--home", "/tmp/x y", "--set", "gateway.port=1", "--set", "log.format=json", "--log-level", "debug"]
    pegasus(*([*options, "run"] if where == "before" else ["run", *options]))
    home, settings, _ = daemon[0]
    assert str(home) == "/tmp/x y"
    assert (settings.gateway.port, settings.log.format, settings.log.level) == (1, "json", "debug")


def test_set_on_both_sides_adds_up_and_the_later_wins(pegasus, daemon):
    pegasus("--set", "gateway.port=1", "--set", "log.level=error", "run", "--set", "gateway.port=2")
    settings = daemon[0][1]
    assert (settings.gateway.port, settings.log.level) == (2, "error")


def test_a_profile_has_its_own_home_and_settings(pegasus, daemon, user):
    (user / ".pegasus-work").mkdir()
    (user / ".pegasus-work" / "pegasus.toml").write_text("[gateway]\nport = 1\n")
    pegasus("--profile", "work")
    home, settings, _ = daemon[0]
    assert (home.path, settings.gateway.port) == (user / ".pegasus-work", 1)


def test_the_environment_names_home_and_settings(pegasus, daemon, user, monkeypatch):
    (user / "other.toml").write_text("[gateway]\nport = 2\n")
    monkeypatch.setenv("PEGASUS_HOME", str(user / "elsewhere"))
    monkeypatch.setenv("PEGASUS_CONFIG", str(user / "other.toml"))
    monkeypatch.setenv("PEGASUS__LOG__LEVEL", "error")
    pegasus()
    home, settings, _ = daemon[0]
    assert (home.path, settings.gateway.port, settings.log.level) == (user / "elsewhere", 2, "error")


def test_config_wins_over_the_environment(pegasus, daemon, user, monkeypatch):
    (user / "a.toml").write_text("[gateway]\nport = 3\n")
    monkeypatch.setenv("PEGASUS_CONFIG", "/nonexistent")
    pegasus("--config", str(user / "a.toml"))
    assert daemon[0][1].gateway.port == 3


def test_the_version(pegasus):
    assert pegasus("--version") == (0, f"pegasus {__version__}\n", "")


def test_help_lists_the_commands_that_are_there(pegasus):
    code, out, _ = pegasus("--help")
    assert code == 0
    commands = out.partition("Commands:")[2].partition("Options:")[0].split("\n")
    assert [line.split()[0] for line in commands if line[2:3].strip()] == [
        "run",
        "chat",
        "send",
        "open",
        "init",
        "status",
        "tree",
        "doctor",
        "tasks",
        "config",
        "memory",
        "skills",
        "sessions",
        "cron",
        "pair",
        "mcp",
        "approvals",
        "also",
    ]
    seldom = out.partition("\n  also ")[2].partition("(each")[0].replace(",", " ").split()
    assert seldom == [
        "trace",
        "import",
        "backup",
        "restore",
        "move",
        "migrate",
        "export",
        "update",
        "acp",
        "persona",
        "token",
        "service",
        "reload",
        "logs",
        "nodes",
        "drain",
        "completion",
    ]
    for name in seldom:
        assert pegasus(name, "--help")[0] == 0


def test_help_fits_a_screen_and_cuts_no_sentence(pegasus):
    out = pegasus("--help")[1]
    assert out.partition("Options:")[0].count("\n") <= 23, "the commands are on the first screen"
    assert "..." not in out.partition("Commands:")[2]
    for group in ("tasks", "config", "memory", "skills", "sessions", "persona", "approvals", "token", "pair"):
        assert "..." not in pegasus(group, "--help")[1].partition("Commands:")[2], group


def test_a_hint_names_the_program_that_the_person_has(pegasus, monkeypatch):
    monkeypatch.setenv("PEGASUS_PROGRAM", "./scripts/run")
    assert pegasus("tasks", "show")[2] == "pegasus: Missing argument 'N' (see ./scripts/run tasks show --help)\n"
    assert pegasus("foo")[2].endswith("(see ./scripts/run --help)\n")


def test_hints_name_the_command_that_started_pegasus(pegasus, monkeypatch):
    """A user of ./scripts/run has no `pegasus` on the path."""
    monkeypatch.setenv("PEGASUS_PROGRAM", "./scripts/run")
    assert pegasus("status")[2].endswith("start one with: ./scripts/run run\n")
    assert "Next: ./scripts/run " in pegasus("init")[1]
    assert '# "./scripts/run config check" finds mistakes, "./scripts/run config show" ' in pegasus("config", "keys")[1]
    assert '"./scripts/run config keys" lists all of them.' in pegasus("config", "set", "no.key", "1")[2]
    assert "`./scripts/run token revoke laptop` takes it back." in pegasus("token", "add", "laptop")[2]


def test_the_help_names_the_command_that_started_pegasus(pegasus, monkeypatch):
    monkeypatch.setenv("PEGASUS_PROGRAM", "./my scripts/run")
    assert "Usage: ./my scripts/run tasks" in pegasus("tasks", "--help")[1]
    for command in (["tasks"], ["tasks", "show"]):
        help = " ".join(pegasus(*command, "--help")[1].split())
        assert help.endswith("Global options (./my scripts/run --help) may stand here too.")
    assert "Global options" not in pegasus("--help")[1]
    assert "(see ./my scripts/run tasks show --help)" in pegasus("tasks", "show")[2]


def test_hints_lead_to_the_home_of_the_command(pegasus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pegasus("--profile", "work", "status")[2].endswith("start one with: pegasus --profile work run\n")
    assert pegasus("status", "--home", "a b")[2].endswith(f"start one with: pegasus --home '{tmp_path}/a b' run\n")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("pegasus.app", ("pegasus.terminal", "rich", "prompt_toolkit", "structlog", "pegasus.cli.chat")),
        ("pegasus.cli.chat", ("pegasus.app", "rich", "prompt_toolkit", "structlog")),
        ("pegasus.cli", ("pegasus.app", "pegasus.terminal", "trio_websocket")),
    ],
)
def test_the_daemon_imports_nothing_of_the_chat_nor_the_chat_of_the_daemon(module, absent):
    script = f"import sys, {module}; sys.exit(str([m for m in {absent} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=20, check=False)
    assert done.stderr == "[]\n"


def test_a_daemon_that_is_started_has_nothing_of_the_commands_that_ask_it_nor_of_what_its_clients_need():
    script = (
        "import sys, pegasus.app; pegasus.app.run_daemon = lambda *_, **__: 0; from pegasus.cli import main; "
        "code = main(['run', '--no-cli']); "
        "absent = ('pegasus.acp', 'pegasus.client', 'pegasus.terminal', 'pegasus.cli.control', 'pegasus.cli.init', 'tomlkit', "
        "'wsproto', 'h11', 'sqlite3'); "
        "sys.exit(f'{code} {[m for m in absent if m in sys.modules]}')"
    )
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stderr == "0 []\n"


# ------------------------------------------------------------------ wrong usage


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["foo"], "No such command 'foo'"),
        (["statu"], "No such command 'statu'. Did you mean 'status'? (see"),
        (["models"], "Did you mean 'init'?"),
        (["onboard"], "Did you mean 'init'?"),
        (["gateway", "start"], "Did you mean 'run'?"),
        (["gateway", "status"], "Did you mean 'service status'?"),
        (["daemon"], "'run' (in this terminal) or 'service' (always)"),
        (["fix the build"], "`send` sends a text"),
        (["backup", "create"], "FILE is what is written"),
        (["cron", "add", "--message", "x"], "No such option '--message'. Did you mean '--prompt'?"),
        (["cron", "runs"], "No such command 'runs'. `tasks list` has the tasks that ran"),
        (["cron", "rm", "x"], "Did you mean 'remove'?"),
        (["doctor", "--fix"], "below each fault it says what to do"),
        (["skills", "add", "x"], "Did you mean 'install'?"),
        (["version"], "Did you mean '--version'?"),
        (["-p", "hello"], "No such option '-p'. Did you mean 'send'?"),
        (["--continue"], "Did you mean 'chat'?"),
        (["cron", "help"], "No such command 'help' (see"),
        (["config", "chek"], "Did you mean 'check'?"),
        (["run", "--no-clii"], "Did you mean '--no-cli'?"),
        (["run", "extra"], "unexpected extra argument"),
        (["send"], "Missing argument 'TEXT'"),
        (["send", " "], "found nothing to send"),
        (["send", "x", "--wait", "-1"], "found -1.0; allowed: 0 to 86400 seconds"),
        (["send", "x", "--wait", "nan"], 'found "nan"; allowed: a number (see'),
        (
            ["cron", "add", "--every", "inf", "--prompt", "x", "--channel", "cli:main"],
            'found "inf"; allowed: a number (see',
        ),
        (["send", "x", "--wait", "soon"], 'found "soon"; allowed: a number (see'),
        (["memory", "undo", "x"], 'found "x"; allowed: a whole number from 1 (see'),
        (["memory", "log", "--limit", "0"], 'found "0"; allowed: a whole number from 1 to 200 (see'),
        (["tasks", "list", "--date", "2026-02-30"], 'found "2026-02-30"; allowed: YYYY-MM-DD (see'),
        (["chat", "--channel", ""], "allowed: printable text"),
        (["chat", "--channel", "a\nb"], "allowed: printable text"),
        (["--set", "x", "run"], 'found "x"; allowed: section.key=value'),
        (["--set", "a..b=1", "run"], 'found "a..b"; allowed: section.key=value'),
        (["--log-level", "loud"], 'found "loud"; allowed: debug, info, warning, error (see'),
        (["memory", "search", "x", "--in", "notes"], 'found "notes"; allowed: facts, episodes, sessions (see'),
        (["sessions", "list", "--limit", "0"], 'found "0"; allowed: a whole number from 1 to 500 (see'),
        (["sessions", "list", "--offset", "-1"], 'found "-1"; allowed: a whole number from 0 (see'),
        (["import", "/x"], "Missing option '--from'. Allowed: openclaw, nanobot, hermes (see"),
        (["import", "/x", "--from", "y"], 'found "y"; allowed: openclaw, nanobot, hermes (see'),
        (["--home", "/x", "--profile", "y"], "--home and --profile exclude each other"),
        (["--home", "/x", "run", "--profile", "y"], "--home and --profile exclude each other"),
        (["--profile", "../x"], "allowed: letters, digits, - and _"),
        (["--home", ""], "found an empty name"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(pegasus, daemon, args, words):
    code, out, err = pegasus(*args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("pegasus: ")
    assert words in err


def test_half_a_command_shows_what_is_missing(pegasus):
    code, out, err = pegasus("config")
    assert (code, out) == (2, "")
    assert "check" in err


# ------------------------------------------------------------------ errors


def test_bad_settings_are_lines_on_stderr_and_exit_code_78(pegasus, daemon, user):
    code, out, err = pegasus("run", "--set", "gateway.prot=1", "--set", "log.level=x")
    assert (code, out) == (78, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["gateway.prot", "log.level"]
    assert not (user / ".pegasus").exists()
    assert daemon == []


def test_a_missing_config_is_told(pegasus, daemon):
    assert pegasus("--config", "/nonexistent")[::2] == (
        78,
        "/nonexistent: found no such file; allowed: a TOML file, as --config or PEGASUS_CONFIG names it\n",
    )


def test_the_help_shows_whole_sentences_and_the_commands_before_the_options(pegasus):
    code, out, _ = pegasus("--help")
    assert code == 0
    assert out.index("Commands:") < out.index("Options:")
    assert "..." not in out.partition("Commands:")[2]
    assert len(out.partition("Options:")[0].splitlines()) < 24


def test_another_owner_of_the_home_is_exit_code_75(pegasus, failing):
    from pathlib import Path

    from pegasus.host import Home

    failing(HomeBusy(Home(Path("/h")), 42))
    code, _, err = pegasus("run")
    assert (code, err) == (
        75,
        "pegasus: /h: process 42 already runs Pegasus here; stop it, or give another --home or --profile\n",
    )


def test_a_defect_is_one_line_and_its_traceback_in_the_log(pegasus, failing, tmp_path):
    configure_logging(tmp_path / "x.log")
    failing(ZeroDivisionError("oh"))
    code, _, err = pegasus("run")
    assert code == 1
    assert err.splitlines()[-1] == "pegasus: internal error: ZeroDivisionError: oh; the log has the details"
    assert "Traceback" in (tmp_path / "x.log").read_text()


def test_a_defect_before_there_is_a_log_shows_its_traceback(pegasus, failing):
    failing(ZeroDivisionError("oh"))
    code, _, err = pegasus("run")
    assert code == 1
    assert err.startswith("Traceback")
    assert err.endswith("pegasus: internal error: ZeroDivisionError: oh\n")


def test_ctrl_c_is_exit_code_130_without_a_traceback(pegasus, failing):
    failing(KeyboardInterrupt())
    assert pegasus("run") == (130, "", "\n")


def test_a_model_without_a_key_is_found_before_the_start(pegasus, daemon):
    code, _, err = pegasus("run", "--set", "models.default=anthropic/x")
    assert code == 78
    assert err.startswith("--set: models.default: ")
    assert daemon == []


def test_a_broken_persona_is_found_before_the_start(pegasus, daemon, user):
    (user / "p.json").write_text("{}")
    code, _, err = pegasus("run", "--set", "agent.persona=~/p.json")
    assert code == 78
    assert all(line.startswith(f"--set: agent.persona: {user}/p.json: ") for line in err.splitlines())


# ------------------------------------------------------------------ the process


@pytest.mark.parametrize("command", ["config show", "config keys", "skills list", "--help"])
def test_a_reader_that_left_is_no_failure(user, command):
    """`pegasus config show | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "pegasus", *command.split()],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=20,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_left_is_found_within_the_groups_of_nurseries(pegasus, failing):
    failing(ExceptionGroup("nursery", [ExceptionGroup("nursery", [BrokenPipeError()])]))
    with open(os.devnull, "w") as stdout, redirect_stdout(stdout):
        assert pegasus("run", "--no-cli") == (0, "", "")


def test_a_full_disk_behind_stdout_is_one_line(user):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pegasus", "config", "show"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"pegasus: No space left on device\n")


def test_closed_standard_streams_do_no_harm(user):
    """Otherwise a file opened later gets number 1 or 2, and what is printed goes into it."""
    done = subprocess.run(
        [sys.executable, "-m", "pegasus", "init"],
        preexec_fn=lambda: [os.close(n) for n in (0, 1, 2)] and None,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    assert (user / ".pegasus" / "token").read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["send", "-"], b"found nothing to send"),
        (["send", "hello", "--file", "-"], b"stdin has nothing"),
        (["config", "set", "agent.persona"], b"there is no value for agent.persona"),
    ],
)
def test_a_closed_stdin_is_an_empty_one(user, command, reason):
    done = subprocess.run(
        [sys.executable, "-m", "pegasus", *command],
        preexec_fn=lambda: os.close(0),
        stderr=subprocess.PIPE,
        timeout=20,
        check=False,
    )
    assert reason in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("latin-1", "gr\xfc\xdfe ? ?"),
        ("utf-8", "gr\xfc\xdfe \U0001f389 ?"),
        ("ascii:surrogateescape", "gr??e ? ?"),  # what Python takes in the locale C, where it is kept from taking UTF-8
    ],
)
def test_a_character_that_stdout_has_no_form_for_is_a_question_mark(user, encoding, shown):
    """A terminal that is not of UTF-8; and the name of a file, which may be any bytes."""
    script = "import sys; from pegasus.host import fill_standard_streams; fill_standard_streams(); print(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", script, "grüße \U0001f389 \udcff"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (done.stdout.decode(encoding.partition(":")[0]), done.stderr) == (shown + "\n", b"")


def test_bytes_on_stdin_that_are_no_text_are_no_defect(user):
    done = subprocess.run(
        [sys.executable, "-m", "pegasus", "send", "-"],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        input=b"gr\xff\xdfe",
        stderr=subprocess.PIPE,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"no agent is running" in done.stderr


def test_a_settings_error_costs_no_daemon():
    """Found with the light half of the program: nothing of the daemon is imported."""
    script = (
        "import sys; from pegasus.cli import main; code = main(['run', '--set', 'x.y=1']); "
        "heavy = [m for m in ('structlog', 'rich', 'httpx', 'prompt_toolkit', 'pegasus.app') if m in sys.modules]; "
        "sys.exit(f'{code} {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=20, check=False)
    assert done.stderr.splitlines()[-1] == "78 []"


def test_an_interrupt_while_starting_is_exit_code_130(user):
    script = (
        "import os, signal, sys, pegasus.cli.program as m; from pegasus import __main__;"
        "m.fill_standard_streams = lambda: os.kill(os.getpid(), signal.SIGINT);"
        "sys.argv = ['pegasus', 'config', 'show']; __main__.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (130, "")
    assert signal.SIGINT == 2
