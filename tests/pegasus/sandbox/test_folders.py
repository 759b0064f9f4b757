"""Plans of folders: what is hidden, what can be read all the same, what can be written."""

import os

import pytest

from pegasus.sandbox.folders import Folders, around, plan_folders


@pytest.fixture
def home(tmp_path):
    path = tmp_path / "person" / ".pegasus"
    (path / "workspace").mkdir(parents=True)
    (path / "pegasus.toml").touch()
    return path


def plan(home, path="", **more):
    return plan_folders(home, home / "workspace", environ={"HOME": str(home.parent), "PATH": path}, **more)


def test_the_homes_are_hidden_and_the_workspace_is_not(home):
    kinds = dict(plan(home).entries())
    assert kinds[str(home.parent)] == "home"
    assert kinds[str(home / "workspace")] == "write"
    assert str(home) not in kinds, "it is within a hidden folder"


def test_an_opened_folder_is_not_hidden_but_for_the_own_home(home):
    kinds = dict(plan(home, writable=(str(home.parent),)).entries())
    assert (kinds[str(home.parent)], kinds[str(home)]) == ("write", "hide")
    kinds = dict(plan(home, allowed_paths=("/",)).entries())
    assert (kinds["/"], kinds[str(home)], kinds[str(home / "workspace")]) == ("write", "hide", "write")


def test_the_own_home_cannot_be_opened(home):
    (home / "skills").mkdir()
    folders = plan(home, writable=(str(home), str(home / "skills"), "."), allowed_paths=(str(home),))
    assert folders.writable == (str(home / "workspace"),)


def test_a_settings_file_somewhere_else_is_hidden(home, tmp_path):
    file = tmp_path / "etc.toml"
    file.touch()
    assert str(file) in plan(home, settings_file=file).hidden


def test_programs_in_the_home_can_be_read(home):
    tools = home.parent / ".nvm/versions/node/v20"
    (tools / "bin").mkdir(parents=True)
    (home.parent / "bin").mkdir()
    kinds = dict(plan(home, f"{tools}/bin:{home.parent}/bin").entries())
    assert kinds[str(tools)] == "read", "the folder above holds the rest of the installation"
    assert kinds[str(home.parent / "bin")] == "read"


def test_a_path_that_is_the_home_opens_nothing(home):
    kinds = dict(plan(home, f"{home.parent}:{home}:/").entries())
    assert kinds[str(home.parent)] == "home"
    assert "read" not in [kinds.get(str(home)), kinds.get("/")]


def test_all_around_what_is_closed(tmp_path):
    for name in ("a/b/closed", "a/b/open", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a/b/closed")
    (tmp_path / "a/file").touch()
    found = around(str(tmp_path), [str(tmp_path / "a/b/closed"), "/elsewhere"])
    assert sorted(os.path.relpath(path, tmp_path) for path in found) == ["a/b/open", "a/file", "c"]
    assert around(str(tmp_path), []) == [str(tmp_path)]


def test_what_is_granted_leaves_out_what_is_hidden():
    folders = Folders("/usr/share/doc", writable=("/usr/share/doc",), hidden=("/usr/share",))
    read, write = folders.granted()
    assert write == ["/usr/share/doc"]
    assert "/usr/bin" in read
    assert not any(path in ("/", "/usr", "/usr/share") or path.startswith(("/proc", "/dev")) for path in read)


@pytest.mark.parametrize("is_all", [False, True])
def test_a_folder_alone_hides_all_others_that_can_be_written_but_for_programs(home, tmp_path, is_all):
    tools, notes, own = tmp_path / "tools", tmp_path / "notes", home / "guests" / "eve"
    for folder in (tools / "bin", own, notes):
        folder.mkdir(parents=True)
    environ = {"HOME": str(home.parent), "PATH": str(tools / "bin")}
    opened = (str(tools), str(notes), *(["/"] if is_all else []))
    folders = plan(home, str(tools / "bin"), writable=opened).only(str(own), environ=environ)
    places = (own, home / "workspace", home, home.parent, notes, tools, tools / "bin")
    kinds = [
        folders.kind_of(str(path)).replace("home", "hide") for path in places
    ]  # both show nothing of what is there
    assert kinds == ["write", "hide", "hide", "hide", "hide", "hide", "read"]
    assert (folders.workspace, folders.kind_of("/usr")) == (str(own), "read")
    assert not is_all or folders.kind_of("/run/user") == "hide"


def test_what_is_hidden_stays_so_where_the_same_folder_is_opened():
    folders = Folders("/desk", writable=("/desk", "/keys"), hidden=("/keys",))
    assert [folders.kind_of(path) for path in ("/desk/a", "/keys/a")] == ["write", "hide"]
