"""`pegasus doctor`: each thing that can be wrong is found, named with its remedy, and does not hide the others."""

import json
import os
import shutil
import socket
from collections import namedtuple

import pytest

from pegasus.cli import doctor
from pegasus.client import Refused
from pegasus.models.providers import LocalModel
from pegasus.sandbox import landlock
from pegasus.sandbox import sandbox as sandbox_module


@pytest.fixture
def home(user):
    home = user / ".pegasus"
    (home / "workspace").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    return home


@pytest.fixture
def findings(pegasus):
    """Runs the command with --json; returns exit code and findings by check."""

    def findings(*args):
        code, out, err = pegasus("doctor", "--json", "--set", "gateway.port=0", "--set", "http.port=0", *args)
        assert err == ""
        answer = json.loads(out)
        assert answer["ok"] == (code == 0)
        found = {}
        for finding in answer["findings"]:
            found.setdefault(finding["check"], []).append(finding)
        return code, found

    return findings


def broken(found, check):
    """The findings of a check that are broken; each has a remedy."""
    bad = [finding for finding in found[check] if finding["severity"] == "broken"]
    assert all(finding["fix"] for finding in bad)
    return [finding["text"] for finding in bad]


def test_a_new_home_is_well_and_nothing_is_made(pegasus, user):
    code, out, err = pegasus("doctor", "--set", "gateway.port=0", "--set", "http.port=0")
    assert (code, err) == (0, "")
    assert "0 broken" in out
    assert [line.split()[1] for line in out.splitlines() if line[:1] not in ("", " ", "0")] == [
        "installation", "settings", "keys", "home", "token", "files", "ports", "sandbox", "people"
    ]  # fmt: skip
    assert not (user / ".pegasus").exists()


def test_mistakes_in_the_settings(findings, home):
    (home / "pegasus.toml").write_text("[gateway]\nhots = 'x'\n[tools]\ntimeout = 0\n")
    code, found = findings()
    assert code == 1
    assert len(broken(found, "settings")) == 2
    assert {"home", "files", "installation"} <= set(found), "the others are made all the same"


def test_few_model_calls_for_many_chats(findings, home):
    _, found = findings("--set", "agent.scope=chat")
    assert any("3 model calls run at once" in finding["text"] for finding in found["keys"])
    _, found = findings("--set", "agent.scope=chat", "--set", "models.max_concurrent_calls=20")
    assert not any("at once" in finding["text"] for finding in found["keys"])


LAB = (
    "--set",
    "providers.lab.type=openai",
    "--set",
    "providers.lab.base_url=http://127.0.0.1:1/v1",
    "--set",
    "models.timeout=0.5",
)


def test_a_model_that_does_not_answer(findings, home):
    code, found = findings(*LAB, "--set", "models.default=lab/qwen3")
    assert code == 1
    assert "lab/qwen3 does not answer" in broken(found, "keys")[0]


@pytest.mark.parametrize(("name", "is_listed"), [("qwen3", True), ("gemma4", True), ("qwen2", False)])
def test_a_model_that_its_server_does_not_list(findings, home, monkeypatch, name, is_listed):
    async def describe(provider, base_url, is_ollama, *, key=""):
        return [LocalModel(provider, each, "", base_url) for each in ("qwen3", "google/gemma4")]

    monkeypatch.setattr("pegasus.models.providers.offers.describe_models", describe)
    _, found = findings(*LAB, "--set", f"models.default=lab/{name}")
    notes = [finding["text"] for finding in found["keys"] if finding["severity"] == "note"]
    assert broken(found, "keys")
    assert notes == (
        [] if is_listed else ["the server of lab/qwen2 does not list qwen2; it lists qwen3, google/gemma4"]
    )


def test_a_model_without_its_key(findings, home):
    code, found = findings("--set", "models.fallback=['openai/x']")
    assert (code, "keys" in found) == (1, False)
    assert "models.fallback" in broken(found, "settings")[0]


def test_a_home_and_a_token_that_others_can_read(findings, home):
    (home / "token").write_text("x" * 43)
    home.chmod(0o755)
    (home / "token").chmod(0o644)
    code, found = findings()
    assert code == 1
    assert "open to others (mode 755)" in broken(found, "home")[0]
    assert "open to others (mode 644)" in broken(found, "token")[0]


def test_a_home_that_is_no_folder(pegasus, user):
    """The advice must not be to change the rights of whatever stands there."""
    (user / "file").write_text("")
    code, out, err = pegasus("--home", str(user / "file"), "doctor", "--json")
    home = [finding for finding in json.loads(out)["findings"] if finding["check"] == "home"]
    assert (code, err) == (1, "")
    assert [finding["text"] for finding in home] == [f"{user / 'file'} is not a folder"]
    assert "--home" in home[0]["fix"]


def test_a_home_on_a_disk_that_cannot_be_written(findings, home, monkeypatch):
    """Another owner would not help there."""
    ST_RDONLY = os.ST_RDONLY
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    monkeypatch.setattr(doctor.os, "statvfs", lambda path: namedtuple("statvfs", "f_flag")(ST_RDONLY))
    [finding] = findings()[1]["home"]
    assert finding["text"] == f"{home} is on a disk that is mounted read-only"
    assert "chown" not in finding["fix"]


def test_a_token_that_is_too_short(findings, home):
    (home / "token").write_text("short")
    (home / "token").chmod(0o600)
    assert "has 5 characters" in broken(findings()[1], "token")[0]


@pytest.mark.parametrize("section", ["gateway", "http"])
def test_a_port_that_is_taken(findings, home, section):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, found = findings("--set", f"{section}.port={server.getsockname()[1]}")
    assert code == 1
    assert "Address already in use" in broken(found, "ports")[0]


def test_a_daemon_that_does_not_answer(findings, home):
    (home / "run").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ws://127.0.0.1:{server.getsockname()[1]}"
    text = json.dumps({"pid": os.getpid(), "ws": address, "http": "", "version": "0", "startedAt": 1})
    (home / "run" / "daemon.json").write_text(text)
    (home / "token").write_text("x" * 43)
    (home / "token").chmod(0o600)
    assert f"process {os.getpid()} does not answer" in broken(findings()[1], "ports")[0]


def test_a_daemon_that_waits_for_its_database_is_not_to_be_ended(findings, home, monkeypatch):
    async def refuse(*args):
        raise Refused("internal", "the database does not answer; try again")

    (home / "run").mkdir()
    text = json.dumps({"pid": os.getpid(), "ws": "ws://127.0.0.1:1", "http": "", "version": "0", "startedAt": 1})
    (home / "run" / "daemon.json").write_text(text)
    monkeypatch.setattr(doctor, "ask_daemon", refuse)
    [finding] = findings("--set", "gateway.token=of-the-settings-0123456789")[1]["ports"]
    assert "the database does not answer" in finding["text"]
    assert "kill" not in finding["fix"]


def test_a_token_of_the_settings(findings, home):
    [finding] = findings("--set", "gateway.token=of-the-settings-0123456789")[1]["token"]
    assert finding["text"] == "it is gateway.token of the settings"


def let_run(home, monkeypatch, **answer):
    """Let an agent run that answers the question for its status."""

    async def status(*question):
        return answer

    (home / "run").mkdir()
    text = json.dumps({"pid": os.getpid(), "ws": "ws://127.0.0.1:1", "http": "", "version": "0", "startedAt": 1})
    (home / "run" / "daemon.json").write_text(text)
    (home / "token").write_text("x" * 43)
    (home / "token").chmod(0o600)
    monkeypatch.setattr(doctor, "ask_daemon", status)


def test_a_daemon_that_waits_for_its_database(findings, home, monkeypatch):
    let_run(home, monkeypatch, database="its disk is full")
    code, found = findings()
    assert code == 1
    assert broken(found, "database") == ["the agent waits for its database: its disk is full"]


@pytest.mark.parametrize(("is_changed", "severities"), [(True, ["ok", "note"]), (False, ["ok"])])
def test_a_daemon_whose_code_was_changed(findings, home, monkeypatch, is_changed, severities):
    let_run(home, monkeypatch, codeChanged=is_changed)
    found = findings()[1]["ports"]
    assert [finding["severity"] for finding in found] == severities
    assert found[-1]["fix"] == ("restart the agent" if is_changed else "")


@pytest.mark.parametrize(("free", "severity"), [(10 << 20, "broken"), (500 << 20, "note"), (5 << 30, "ok")])
def test_little_room_on_the_disk(findings, home, monkeypatch, free, severity):
    usage = namedtuple("usage", "total used free")(0, 0, free)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage)
    assert [finding["severity"] for finding in findings()[1]["files"]] == [severity], "room is reported once"


def test_a_skill_with_mistakes(findings, home):
    (home / "skills" / "bad").mkdir(parents=True)
    (home / "skills" / "bad" / "SKILL.md").write_text("no front matter")
    found = findings()[1]["files"][0]
    assert (found["severity"], "1 problem with skills" in found["text"]) == ("note", True)


def test_packages_that_are_missing(findings, home, monkeypatch):
    monkeypatch.setattr(
        doctor.metadata, "requires", lambda name: ["attrs>=1", "no-such-package<2", "other; extra == 'x'"]
    )
    assert broken(findings()[1], "installation") == ["missing packages: no-such-package"]


def test_walls(findings, home, monkeypatch):
    assert "none" in findings("--set", "sandbox.mode=off")[1]["sandbox"][0]["text"]
    monkeypatch.setattr(sandbox_module.shutil, "which", lambda name: None)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    found = findings()[1]["sandbox"][0]
    assert (found["severity"], "install bubblewrap" in found["fix"]) == ("note", True)
    code, found = findings("--set", "sandbox.mode=require")
    assert code == 1
    assert "sandbox.mode" in broken(found, "sandbox")[0]


def test_a_check_that_fails_hides_no_other(findings, home, monkeypatch):
    monkeypatch.setattr(doctor, "skills_of", lambda home: 1 / 0)
    code, found = findings()
    assert code == 1
    assert "ZeroDivisionError" in broken(found, "files")[0]
    assert "sandbox" in found


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_look_leaves_the_files_of_running_commands(findings, home):
    (home / "run/commands/one").mkdir(parents=True)
    assert findings()[1]["sandbox"][0]["text"] == "walls around commands: bubblewrap"
    assert (home / "run/commands/one").exists()


def test_people_who_share_one_conversation_are_named(findings, home):
    (home / "pegasus.toml").write_text('[agent]\nowners = ["cli:*", "telegram:1", "slack:U2"]\n')
    tokens = [
        {"name": name, "hash": "0" * 63 + str(n), "scopes": ["message"], "type": "web", "channelId": channel}
        for n, (name, channel) in enumerate((("ann", "home"), ("bob", "home"), ("eve", "own")))
    ]
    (home / "data").mkdir()
    (home / "data" / "tokens.json").write_text(json.dumps({"tokens": tokens}))
    _, found = findings()
    notes = [finding["text"] for finding in found["people"] if finding["severity"] == "note"]
    assert notes == [
        "these owners share one conversation and read what the others have said: telegram:1, slack:U2",
        "the tokens ann, bob share the conversation web:home",
    ]
    _, found = findings("--set", "agent.scope=chat", "--set", 'agent.owners=["telegram:1"]')
    assert [finding["severity"] for finding in found["people"]] == ["ok", "note"]
