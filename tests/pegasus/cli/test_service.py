"""`pegasus service`: the texts for systemd and launchd, and the calls of their programs."""

from __future__ import annotations

import json
import os
import plistlib
import shlex
import shutil
import stat
import subprocess
import sys

import pytest

from pegasus.cli import service
from pegasus.cli.service_unit import ServiceUnit, environment_file, launchd_plist, service_path, systemd_unit

ODD = """/opt/a b%c$d/\\e'f"gü;"""
"""A path with everything that a service manager may take for something else."""

FAKE = """#!/bin/sh
printf '%s\\n' "$*" >>"$HOME/calls"
case "$*" in
  *show-environment*|*"print gui/"*[0-9])
    [ ! -e "$HOME/no-manager" ] || { echo "Failed to connect to bus: No medium found" >&2; exit 1; } ;;
  *"show pegasus"*) cat "$HOME/state" 2>/dev/null || printf 'ActiveState=inactive\\nUnitFileState=\\nMainPID=0\\n' ;;
  *"restart pegasus"*) [ ! -e "$HOME/fails" ] || { echo "Job for pegasus.service failed." >&2; exit 1; } ;;
  *"-p Linger"*) echo no ;;
  *"print gui/"*) cat "$HOME/state" 2>/dev/null || exit 113 ;;
esac
"""
"""systemctl, loginctl and launchctl: notes its arguments, and answers from files of the home."""


@pytest.fixture
def manager(user, monkeypatch):
    """Programs of a service manager before all others on the path; `calls()` returns the arguments they were called with."""
    folder = user / "fakes"
    folder.mkdir()
    for name in ("systemctl", "loginctl", "launchctl"):
        (folder / name).write_text(FAKE)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_BASE_URL", "_PROXY", "_TOKEN")) or name.startswith("SSL_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "linux")

    def calls() -> list[str]:
        file = user / "calls"
        return file.read_text().splitlines() if file.exists() else []

    return calls


@pytest.fixture
def unit_file(user):
    return user / ".config" / "systemd" / "user" / "pegasus.service"


# ------------------------------------------------------------------ systemd's text


def started(text: str) -> list[str]:
    """What systemd makes of ExecStart: quotation marks and backslashes as in a shell, `%%` and `$$` halved."""
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    return [part.replace("%%", "%").replace("$$", "$") for part in shlex.split(line.removeprefix("ExecStart="))]


def test_the_unit_of_a_plain_installation(pegasus, manager, user):
    code, out, err = pegasus("service", "install", "--print")
    assert (code, err) == (0, "")
    for line in ("Type=notify", "WatchdogSec=30", "Restart=on-failure", "WantedBy=default.target", "TimeoutStopSec=20"):
        assert line in out.splitlines()
    assert started(out) == [sys.executable, "-P", "-m", "pegasus", "run", "--no-cli"]
    assert f'Environment="PATH={user}/fakes:/usr/bin:/bin:{user}/.local/bin:/usr/local/bin' in out
    assert manager() == [], "nothing is asked and nothing is written"
    assert not (user / ".config").exists()


@pytest.mark.parametrize(
    ("arguments", "name", "options"),
    [
        (["--profile", "work"], "pegasus-work", ["--profile", "work"]),
        (["--set", "log.level=debug"], "pegasus", ["--set", "log.level=debug"]),
    ],
)
def test_the_unit_leads_to_the_home_of_the_command(pegasus, manager, user, arguments, name, options):
    out = pegasus(*arguments, "service", "install", "--print")[1]
    assert started(out)[4:-2] == options
    assert f"EnvironmentFile=-{user}/.config/{name}.env" in out


def test_a_home_in_the_environment_and_a_relative_one_are_written_in_full(pegasus, manager, user, monkeypatch):
    monkeypatch.chdir(user)
    assert started(pegasus("--home", "a b", "service", "install", "--print")[1])[4:6] == ["--home", f"{user}/a b"]
    monkeypatch.setenv("PEGASUS_HOME", str(user / "other"))
    assert started(pegasus("service", "install", "--print")[1])[4:6] == ["--home", f"{user}/other"]


def test_paths_with_everything_that_systemd_takes_for_something_else():
    unit = ServiceUnit("pegasus", (f"{ODD}/python", "--home", ODD), f"/bin:{ODD}", environment_file=f"{ODD}.env")
    text = systemd_unit(unit)
    assert started(text) == ["/usr/bin/env", f"{ODD}/python", "--home", ODD]
    assert "EnvironmentFile=-" + ODD.replace("%", "%%") + ".env" in text


@pytest.mark.parametrize("bad", ["/a\nExecStartPre=/bin/evil", "/a\x1b[0m", "/a\udcff"])
def test_a_path_that_cannot_be_written_down_is_refused(bad):
    with pytest.raises(ValueError, match="control characters"):
        systemd_unit(ServiceUnit("pegasus", ("/bin/sh", bad), "/bin"))
    with pytest.raises(ValueError, match="control characters"):
        systemd_unit(ServiceUnit("pegasus", ("/bin/sh",), "/bin", environment_file=bad))
    with pytest.raises(ValueError, match="control characters"):
        environment_file({"KEY": bad})


def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "a b%c" / 'py"th\\on'
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "run").mkdir()
    file = tmp_path / "pegasus.service"
    file.write_text(systemd_unit(ServiceUnit("pegasus", (str(program), "--home", ODD), f"/bin:{ODD}", ODD)))
    checked = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(file)],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_variables_survive_their_file():
    value = 'sk-"quoted" $HOME `id` \\n %h #x'
    text = environment_file({"KEY": value})
    assert text == 'KEY="sk-\\"quoted\\" \\$HOME \\`id\\` \\\\n %h #x"\n'
    sourced = subprocess.run(["sh", "-c", f'{text}printf %s "$KEY"'], capture_output=True, text=True, check=True)
    assert sourced.stdout == value, "a shell reads such a line as systemd does"


# ------------------------------------------------------------------ the path


def programs(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_the_path_finds_uvx_npx_and_what_the_user_installed(tmp_path):
    node = programs(tmp_path / ".nvm" / "versions" / "node" / "v20.1.0" / "bin", "npx")
    programs(tmp_path / ".nvm" / "versions" / "node" / "v9.9.9" / "bin", "npx")
    cargo = programs(tmp_path / ".cargo" / "bin", "uvx")
    path = service_path({"HOME": str(tmp_path), "PATH": f"{tmp_path}/empty:relative::."}).split(":")
    assert path[:2] == [f"{tmp_path}/empty", f"{tmp_path}/.local/bin"]
    assert {"/usr/bin", "/bin", "/usr/local/bin"} <= set(path)
    assert all(folder.startswith("/") for folder in path)
    if not any(shutil.which("npx", path=folder) for folder in ("/usr/local/bin", "/usr/bin", "/bin")):
        assert node in path
    assert not any("v9.9.9" in folder for folder in path)
    assert (cargo in path) is not any(shutil.which("uvx", path=f) for f in ("/usr/local/bin", "/usr/bin", "/bin"))


def test_a_program_that_the_path_has_brings_no_other_folder(tmp_path):
    own = programs(tmp_path / "mine", "npx", "uvx")
    programs(tmp_path / ".volta" / "bin", "npx")
    assert "volta" not in service_path({"HOME": str(tmp_path), "PATH": own})


def test_a_folder_that_ends_with_the_shell_is_replaced_by_what_it_leads_to(tmp_path):
    node = programs(tmp_path / "node" / "bin", "npx")
    (tmp_path / "fnm_multishells").mkdir()
    (tmp_path / "fnm_multishells" / "123").symlink_to(tmp_path / "node")
    path = service_path({"HOME": str(tmp_path), "PATH": f"{tmp_path}/fnm_multishells/123/bin"})
    assert path.split(":")[0] == node


# ------------------------------------------------------------------ install, status, uninstall


def test_it_is_installed_started_and_removed(pegasus, manager, user, unit_file):
    code, out, err = pegasus("service", "install")
    assert (code, err) == (0, "")
    assert f"wrote  {unit_file}" in out
    assert "loginctl enable-linger" in out
    assert stat.S_IMODE(unit_file.stat().st_mode) == 0o600
    assert unit_file.read_text() == pegasus("service", "install", "--print")[1]
    assert pegasus("service", "status", "--print")[1] == unit_file.read_text()
    systemctl = [call for call in manager() if "daemon-reload" in call or "pegasus.service" in call]
    assert systemctl == [
        "--user daemon-reload",
        "--user enable pegasus.service",
        "--user restart pegasus.service",
    ]
    (user / "state").write_text("ActiveState=active\nUnitFileState=enabled\nMainPID=42\n")
    assert pegasus("service", "status") == (
        0,
        f"the service runs as process 42 and starts at each sign-in ({unit_file})\n",
        "",
    )
    state = json.loads(pegasus("service", "status", "--json")[1])
    assert (state["manager"], state["installed"], state["enabled"], state["pid"]) == ("systemd", True, True, 42)
    assert pegasus("service", "uninstall")[0] == 0
    assert not unit_file.exists()
    assert manager()[-2:] == ["--user disable --now pegasus.service", "--user daemon-reload"]
    assert (user / ".pegasus").exists(), "the home stays"
    code, out, _ = pegasus("service", "uninstall")
    assert (code, out.startswith("no service is installed")) == (0, True)


def test_without_a_service_the_status_says_how_to_get_one(pegasus, manager):
    assert pegasus("service", "status") == (1, "not installed; pegasus service install\n", "")


@pytest.mark.parametrize("missing", ["answer", "program"])
def test_without_systemd_nothing_is_written(pegasus, manager, user, monkeypatch, missing):
    if missing == "answer":
        (user / "no-manager").touch()
    else:
        monkeypatch.setenv("PATH", str(user / "nothing"))
    code, out, err = pegasus("service", "install")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "service install --print" in err
    if missing == "program":
        assert "`pegasus run --no-cli`" in err, "what runs it elsewhere"
    assert not (user / ".config").exists()
    assert not (user / ".pegasus").exists()


def test_a_service_that_does_not_become_ready_stays_and_the_reason_is_said(pegasus, manager, user, unit_file):
    (user / "fails").touch()
    code, _, err = pegasus("service", "install")
    assert code == 1
    assert "Job for pegasus.service failed" in err
    assert "journalctl --user -u pegasus.service" in err
    assert unit_file.exists()


def test_wrong_settings_are_said_before_anything_is_written(pegasus, manager, user):
    (user / ".pegasus").mkdir()
    (user / ".pegasus" / "pegasus.toml").write_text('[models]\ndefault = "nobody/x"\n')
    assert pegasus("service", "install")[0] == 78
    assert not (user / ".config").exists()


def test_an_agent_that_runs_already_is_in_the_way(pegasus, manager, user):
    (user / ".pegasus" / "run").mkdir(parents=True)
    info = {"pid": os.getpid(), "ws": "ws://x", "http": None, "version": "1", "startedAt": 1}
    (user / ".pegasus" / "run" / "daemon.json").write_text(json.dumps(info))
    code, _, err = pegasus("service", "install")
    assert code == 1
    assert f"process {os.getpid()}" in err
    (user / "state").write_text(f"ActiveState=active\nUnitFileState=enabled\nMainPID={os.getpid()}\n")
    assert pegasus("service", "install")[0] == 0, "its own is restarted"


@pytest.mark.parametrize(
    "prefix",
    ["/home/ann/.cache/uv/archive-v0/abc", "/home/ann/.cache/pipx/123", "/home/ann/.local/share/pipx/.cache/1"],
)
def test_an_installation_for_one_call_is_refused(pegasus, manager, user, monkeypatch, prefix):
    monkeypatch.setattr(sys, "prefix", prefix)
    code, _, err = pegasus("service", "install")
    assert code == 1
    assert "uv tool install" in err
    assert not (user / ".config").exists()


# ------------------------------------------------------------------ keys of the shell


def test_keys_of_the_shell_are_kept_when_that_is_wanted(pegasus, manager, user, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", 'sk-"secret"')
    monkeypatch.setenv("PEGASUS__LOG__LEVEL", "debug")
    monkeypatch.setenv("ROOM_TOKEN", "r")
    (user / ".pegasus").mkdir()
    (user / ".pegasus" / "pegasus.toml").write_text(
        '[mcp.servers.room]\ncommand = "true"\nenv = { TOKEN = "${ROOM_TOKEN}" }\n'
    )
    code, out, err = pegasus("service", "install")
    assert code == 0
    assert "OPENAI_API_KEY, PEGASUS__LOG__LEVEL, ROOM_TOKEN" in err
    assert "secret" not in out + err
    keys = user / ".config" / "pegasus.env"
    assert not keys.exists(), "nobody has said yes"
    keys.write_text("OTHER=1\nROOM_TOKEN=old\n")
    assert pegasus("service", "install", "--yes")[0] == 0
    assert keys.read_text() == (
        'OTHER=1\nOPENAI_API_KEY="sk-\\"secret\\""\nPEGASUS__LOG__LEVEL="debug"\nROOM_TOKEN="r"\n'
    )
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert str(keys) in pegasus("service", "uninstall")[1]


# ------------------------------------------------------------------ launchd


def test_the_property_list():
    unit = ServiceUnit("pegasus", ("/usr/bin/python", "--home", ODD), f"/bin:{ODD}", variables={"KEY": "<&>"}, log="/l")
    content = plistlib.loads(launchd_plist(unit).encode())
    assert content["Label"] == "agent.pegasus"
    assert content["ProgramArguments"] == ["/usr/bin/python", "--home", ODD]
    assert content["EnvironmentVariables"] == {"KEY": "<&>", "PATH": f"/bin:{ODD}"}
    assert content["KeepAlive"] == {"SuccessfulExit": False}
    assert content["RunAtLoad"] is True
    assert content["ExitTimeOut"] == 20


def test_on_macos_launchd_gets_it(pegasus, manager, user, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    file = user / "Library" / "LaunchAgents" / "agent.pegasus.plist"
    assert pegasus("service", "install", "--yes")[0] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert manager()[-1] == f"bootstrap gui/{os.getuid()} {file}"
    monkeypatch.delenv("OPENAI_API_KEY")
    assert pegasus("service", "install")[0] == 0
    assert plistlib.loads(file.read_bytes())["EnvironmentVariables"]["OPENAI_API_KEY"] == "sk-1", "kept from before"
    (user / "state").write_text("agent.pegasus = {\n\tstate = running\n\tpid = 7\n}\n")
    code, out, _ = pegasus("service", "status")
    assert (code, "process 7" in out) == (0, True)
    assert pegasus("service", "uninstall")[0] == 0
    assert not file.exists()


def test_whether_a_service_can_be_had(manager, user):
    assert service.can_install()
    (user / "no-manager").touch()
    assert not service.can_install()
