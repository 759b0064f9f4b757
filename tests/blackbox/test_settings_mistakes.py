"""A settings file with each kind of mistake: exit 78, and each line names file, key path, what was found and what is allowed."""

from __future__ import annotations

import pytest

from tests.blackbox.support import Daemon, Exited, command, environment, running

MISTAKES = {
    "unknown section": ("[gatway]\nport = 1\n", ["gatway", "gateway"]),
    "unknown key": ("[gateway]\nprot = 1\n", ["gateway.prot", "port"]),
    "wrong type": ('[gateway]\nport = "7717"\n', ["gateway.port", '"7717"']),
    "a boolean for a number": ("[gateway]\nport = true\n", ["gateway.port", "true"]),
    "too large": ("[gateway]\nport = 70000\n", ["gateway.port", "70000", "65535"]),
    "negative": ("[run]\nshutdown_grace = -1\n", ["run.shutdown_grace", "-1"]),
    "not finite": ("[models]\ntimeout = inf\n", ["models.timeout"]),
    "not a choice": ('[log]\nlevel = "loud"\n', ["log.level", "loud", "debug"]),
    "a section that is a value": ("gateway = 5\n", ["gateway", "5"]),
    "a list of the wrong things": ("[models]\nfallback = [1]\n", ["models.fallback"]),
    "unknown provider": ('[models]\ndefault = "nobody/model"\n', ["models.default", "nobody"]),
    "no model": ('[models]\ndefault = "openai"\n', ["models.default", "openai"]),
    "unknown provider type": ('[providers.x]\ntype = "oracle"\n', ["providers.x.type", "oracle"]),
    "no provider type": ('[providers.x]\napi_key = "k"\n', ["providers.x.type"]),
    "bad address": ('[providers.x]\ntype = "openai"\nbase_url = "localhost"\n', ["providers.x.base_url", "localhost"]),
    "a variable that is required": ('[gateway]\ntoken = "${NOT_SET_ANYWHERE:?set it}"\n', ["gateway.token", "set it"]),
    "a broken variable": ('[gateway]\ntoken = "${NOT_SET"\n', ["gateway.token"]),
    "no TOML": ("[gateway\nport = 1\n", ["line 1"]),
    "a key twice": ("[gateway]\nport = 1\nport = 2\n", ["`port` is declared twice, in lines 2 and 3"]),
    "not UTF-8": (b'[gateway]\nhost = "\xff"\n', ["UTF-8"]),
    "a persona that is not there": ('[agent]\npersona = "nobody.json"\n', ["nobody.json"]),
    "a remote host": ('[gateway]\nhost = "0.0.0.0"\n', ["gateway.host", "allow_remote"]),
    "what comes later": ("[channels.web]\nenabled = true\n", ["channels.web.enabled", "not in this version"]),
}


@pytest.mark.parametrize(("content", "words"), MISTAKES.values(), ids=MISTAKES)
async def test_the_daemon_refuses_to_start_and_says_why(tmp_path, content, words):
    path = tmp_path / "home" / "pegasus.toml"
    path.parent.mkdir()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    daemon = Daemon(tmp_path / "home")
    with pytest.raises(Exited) as refusal:
        await daemon.start()
    assert refusal.value.code == 78
    line = refusal.value.stderr
    assert daemon.stdout == ""
    assert "Traceback" not in line
    for word in [*words, "nobody.json" if "nobody.json" in words else str(path)]:
        assert word in line, line
    assert not (tmp_path / "home" / "run" / "daemon.json").exists()


async def test_all_mistakes_are_told_at_once_one_line_each(tmp_path):
    path = tmp_path / "pegasus.toml"
    path.write_text('[gateway]\nport = "x"\nprot = 1\n[log]\nlevel = "loud"\n[models]\ntimeout = -5\n')
    result = await command("--config", str(path), "--home", str(tmp_path / "home"), "run", "--no-cli")
    assert result.code == 78
    found = result.err.strip().splitlines()
    assert len(found) == 4
    for line in found:
        assert str(path) in line
        assert "found" in line
        assert "allowed" in line


async def test_config_check_says_the_same_as_run(tmp_path):
    path = tmp_path / "pegasus.toml"
    path.write_text('[gateway]\nport = "x"\n[agent]\npersona = "/nowhere.json"\n')
    options = ("--config", str(path), "--home", str(tmp_path / "home"))
    check = await command(*options, "config", "check")
    run = await command(*options, "run", "--no-cli")
    assert (check.code, run.code) == (78, 78)
    assert run.err.strip().splitlines()[0] in (check.err + check.out)


@pytest.mark.parametrize(
    ("options", "env", "word"),
    [
        (["--set", "gateway.port=seven"], {}, "gateway.port"),
        (["--set", "gateway.nope=1"], {}, "gateway.nope"),
        ([], {"PEGASUS__GATEWAY__PORT": "seven"}, "PEGASUS__GATEWAY__PORT"),
        ([], {"PEGASUS__GATEWAY__NOPE": "1"}, "PEGASUS__GATEWAY__NOPE"),
        (["--config", "/nowhere/pegasus.toml"], {}, "/nowhere/pegasus.toml"),
        ([], {"PEGASUS_CONFIG": "/nowhere/pegasus.toml"}, "/nowhere/pegasus.toml"),
    ],
)
async def test_mistakes_in_options_and_variables(tmp_path, options, env, word):
    result = await command("--home", str(tmp_path / "home"), *options, "run", "--no-cli", env=environment(env))
    assert result.code == 78
    assert word in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["dance"],
        ["run", "--dance"],
        ["--set", "no-equals-sign", "run"],
        ["send"],
        ["send", "a", "b"],
        ["send", "a", "--wait", "soon"],
        ["config"],
        ["config", "dance"],
        ["--log-level", "loud", "status"],
        ["--home", "a", "--profile", "b", "status"],
        ["--profile", "../etc", "status"],
        ["--home", "", "status"],
    ],
    ids=" ".join,
)
async def test_wrong_usage(tmp_path, arguments):
    result = await command(*arguments, env=environment({"HOME": str(tmp_path)}))
    assert result.code == 2
    assert result.out == ""
    assert result.err.strip()
    assert "Traceback" not in result.err


async def test_layers_file_environment_option(tmp_path):
    """--set over environment over file."""
    path = tmp_path / "pegasus.toml"
    path.write_text("[agent]\nmax_thoughts = 1\n[models]\ntimeout = 1\n[tools]\ntimeout = 1\n")
    env = environment({"PEGASUS__AGENT__MAX_THOUGHTS": "2", "PEGASUS__MODELS__TIMEOUT": "2"})
    result = await command("--config", str(path), "--set", "agent.max_thoughts=3", "config", "show", env=env)
    assert result.code == 0
    shown = [line.split("#")[0].strip() for line in result.out.splitlines()]
    assert any(line.startswith("max_thoughts") and line.endswith("3") for line in shown)
    assert any(line.startswith("timeout") and line.endswith(("2", "2.0")) for line in shown)


async def test_secrets_are_masked_in_config_show(tmp_path):
    path = tmp_path / "pegasus.toml"
    path.write_text('[gateway]\ntoken = "very-secret-token"\n[providers.openai]\napi_key = "${MY_KEY}"\n')
    result = await command("--config", str(path), "config", "show", env=environment({"MY_KEY": "sk-very-secret"}))
    assert result.code == 0
    assert "secret" not in result.out.replace("secrets", "")


async def test_home_and_config_from_the_environment(tmp_path):
    env = {"PEGASUS_HOME": str(tmp_path / "elsewhere")}
    result = await command("config", "check", env=environment(env))
    assert result.code == 0
    assert str(tmp_path / "elsewhere") in result.out
    result = await command("--profile", "work", "config", "check", env=environment({"HOME": str(tmp_path)}))
    assert result.code == 0
    assert str(tmp_path / ".pegasus-work") in result.out


async def test_a_missing_file_means_all_defaults(tmp_path):
    """Without a key the stand-in thinks, and says so."""
    daemon = Daemon(tmp_path / "home")
    daemon.home.mkdir()
    daemon.options = ("--set", "gateway.port=0", "--set", "http.port=0")
    daemon.configure = lambda **_: None
    await daemon.start()
    async with daemon.client() as client:
        assert "stand-in" in (await client.ask("hello")).lower()
    assert await daemon.stop() == 0
    assert not (daemon.home / "pegasus.toml").exists()


async def test_version_and_help_need_no_home(tmp_path):
    (tmp_path / "file").write_text("")
    for option in ("--version", "--help"):
        result = await command("--home", str(tmp_path / "file" / "x"), option)
        assert result.code == 0
        assert "egasus" in result.out


async def test_good_settings_start(tmp_path):
    settings = {
        "models.default": "offline/stand-in",
        "agent.max_thoughts": 3,
        "log.level": "warning",
        "tools.timeout": 5,
    }
    async with running(tmp_path / "home", settings) as daemon:
        assert await daemon.stop() == 0


async def test_a_key_that_is_set_while_the_agent_runs(tmp_path):
    """`config set` writes what the daemon accepts, tells it, and says when it counts."""
    async with running(tmp_path / "home", {"models.default": "offline/stand-in"}) as daemon:
        path = tmp_path / "home" / "pegasus.toml"
        path.write_text(f"# mine\n{path.read_text()}")
        now = await daemon.command("config", "set", "log.level", "debug")
        assert (now.code, now.out.splitlines()[-1]) == (0, "In effect now.")
        later = await daemon.command("config", "set", "agent.scope", "chat")
        assert (later.code, later.out.splitlines()[-1]) == (0, "In effect after a restart of the agent.")
        assert path.read_text().startswith("# mine\n")
        assert (await daemon.command("config", "set", "models.default", "nobody/x")).code == 1
        assert "nobody" not in path.read_text()
        assert (await daemon.command("config", "check")).code == 0
