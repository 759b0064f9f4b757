"""Where a server runs, what its walls let it read and write, and when the owner is warned."""

from __future__ import annotations

import stat
from types import SimpleNamespace

import attrs
import pytest

from pegasus.mcp.faults import ServerDown
from pegasus.mcp.place import ServerPlace
from pegasus.sandbox import Sandbox
from pegasus.sandbox.folders import plan_folders
from pegasus.settings import McpServerSettings


@pytest.fixture
def world(tmp_path):
    """A person's home with the agent's home in it, and the walls of commands there."""
    person, home = tmp_path / "me", tmp_path / "me" / ".pegasus"
    workspace = home / "workspace"
    workspace.mkdir(parents=True)
    folders = plan_folders(home, workspace, environ={"HOME": str(person)})
    # Without /tmp, where the test itself is.
    folders = attrs.evolve(folders, hidden=(str(home),), homes=(str(person),))
    sandbox = Sandbox(bubblewrap=("bwrap",), folders=folders, witness=object())
    return SimpleNamespace(person=person, home=home, workspace=workspace, sandbox=sandbox)


def place_in(world):
    place = ServerPlace(world.home / "mcp" / "lab", world.workspace)
    place.make()
    return place


def server(command="lab", **keys):
    return McpServerSettings(command=command, **keys)


def program(path, text="#!/bin/sh\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def kinds_in(world, settings, *paths, path="/usr/bin"):
    walls = place_in(world).walls(settings, world.sandbox, path)
    return [walls.folders.kind_of(str(each)) for each in paths]


def test_the_folder_of_a_server_is_its_users_alone(world):
    folder = place_in(world).folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    assert stat.S_IMODE(place_in(world).folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("there", ["link", "file"])
def test_what_is_no_folder_in_its_place_is_refused(world, there):
    (world.home / "mcp").mkdir()
    folder = world.home / "mcp" / "lab"
    folder.symlink_to(world.workspace) if there == "link" else folder.write_text("")
    with pytest.raises(ServerDown, match=r"is not a folder|cannot be made"):
        place_in(world)


@pytest.mark.parametrize(("cwd", "expected"), [("", "mcp/lab"), ("sub", "mcp/lab/sub"), ("workspace", "workspace")])
def test_a_relative_folder_starts_at_its_own(world, cwd, expected):
    assert place_in(world).cwd(server(cwd=cwd)) == str(world.home / expected)


def test_a_server_writes_to_its_own_folder_and_does_not_see_the_workspace(world):
    folder = world.home / "mcp" / "lab"
    assert kinds_in(world, server(), folder, world.workspace, world.home / "mcp", world.person) == [
        "write",
        "home",
        "home",
        "home",
    ]
    assert place_in(world).walls(server(), world.sandbox, "").witness is None


@pytest.mark.parametrize("way", ["name", "path", "below", "link"])
def test_a_server_that_works_in_the_workspace_writes_there_and_is_watched(world, way):
    (world.workspace / "sub").mkdir()
    (world.person / "link").symlink_to(world.workspace)
    cwd = {
        "name": "workspace",
        "path": world.workspace,
        "below": world.workspace / "sub",
        "link": world.person / "link",
    }
    settings = server(cwd=str(cwd[way]))
    assert kinds_in(world, settings, world.workspace) == ["write"]
    assert place_in(world).walls(settings, world.sandbox, "").witness is not None
    assert "without walls" in place_in(world).risk(attrs.evolve(settings, sandbox=False), is_confined=True)
    assert "without walls" in place_in(world).risk(settings, is_confined=False)
    assert place_in(world).risk(settings, is_confined=True) == ""


def test_a_program_of_the_workspace_without_walls_is_warned_of(world):
    script = program(world.workspace / "server.py")
    place = place_in(world)
    assert "server.py" in place.risk(server("python3", args=(script,), sandbox=False), is_confined=True)
    assert "server.py" in place.risk(server(script, sandbox=False), is_confined=True)
    data = server("python3", args=("-x", str(world.workspace), "/etc/hosts"), sandbox=False)
    assert place.risk(data, is_confined=True) == ""
    assert place.risk(McpServerSettings(url="https://x.example"), is_confined=False) == ""


def test_a_virtual_environment_in_the_home_can_be_read_and_nothing_beside_it(world):
    command = program(world.person / "venv" / "bin" / "lab")
    (world.person / "venv" / "pyvenv.cfg").write_text("")
    assert kinds_in(world, server(command), world.person / "venv" / "lib", world.person / "key") == ["read", "home"]


@pytest.mark.parametrize("package", ["lab", "@x/lab"])
def test_a_package_of_npm_in_the_home_can_be_read_and_nothing_beside_it(world, package):
    modules = world.person / ".npm-global" / "lib" / "node_modules"
    script = program(modules / package / "dist" / "index.js", "#!/usr/bin/env node\n")
    link = world.person / ".npm-global" / "bin" / "lab"
    link.parent.mkdir()
    link.symlink_to(script)
    found = kinds_in(
        world, server(), modules / package / "lib", modules / "other", modules / "@x" / "other", path=str(link.parent)
    )
    assert found == ["read", "home", "home"]


def test_an_environment_that_holds_more_than_a_program_stays_hidden(world):
    """One that is the person's home itself, and one that is in the workspace."""
    command = program(world.person / "bin" / "lab")
    (world.person / "pyvenv.cfg").write_text("")
    assert kinds_in(world, server(command), world.person / "key", world.home / "token") == ["home", "home"]
    inner = program(world.workspace / ".venv" / "bin" / "lab")
    (world.workspace / ".venv" / "pyvenv.cfg").write_text("")
    assert kinds_in(world, server(inner), world.workspace / ".venv") == ["home"]


def test_what_the_walls_hide_is_named(world):
    python = program(world.person / "python" / "bin" / "python3")
    command = program(world.person / "bin" / "lab", f"#!{python}\n")
    data = world.person / "data.db"
    data.write_text("")
    settings = server(command, args=("--db", str(data), "https://x.example/", "/etc/hosts", "/no/such/file"))
    place = place_in(world)
    walls = place.walls(settings, world.sandbox, "/usr/bin")
    assert place.hidden(settings, walls, "/usr/bin") == [command, python, str(data)]
    assert place.hidden(server(cwd=str(world.person)), walls, "/usr/bin") == [str(world.person)]
    assert place.hidden(server("no-such-program"), walls, "/usr/bin") == []
