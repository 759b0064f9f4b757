"""Which files tools reach: the allowed folders and nothing else, whatever a path says."""

import os
import socket
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pegasus.settings import SettingsSource, load_settings
from pegasus.tools import ToolError
from pegasus.tools.base import ToolContext
from pegasus.tools.files import paths as paths_module
from pegasus.tools.files.paths import folder_of, locate, open_file, real_folder
from pegasus.tools.standard import MIN_RESULT, base_context

SECRET = "the secret"


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


async def every_way(work, path):
    """Each tool that takes a path refuses this one; gives what the model is told."""
    told = [
        await work.refused("read_file", path=path),
        await work.refused("write_file", path=path, content="x"),
        await work.refused("list_files", path=path),
        await work.refused("get_file_info", path=path),
        await work.refused("edit_file", path=path, old_string="the", new_string="no"),
        await work.refused("grep_files", pattern="secret", path=path),
        await work.refused("move_file", {"from": path, "to": "stolen"}),
        await work.refused("move_file", {"from": "mine.txt", "to": path}),
    ]
    assert all("outside of what tools may touch" in words for words in told), told
    return told


async def test_dots_lead_nowhere(work, workspace, outside):
    (workspace / "mine.txt").write_text("mine")
    for path in (
        "../outside/secret.txt",
        "a/../../outside/secret.txt",
        "./../outside/secret.txt",
        str(outside / "secret.txt"),
    ):
        await every_way(work, path)
    assert (outside / "secret.txt").read_text() == SECRET


async def test_a_link_to_a_file_outside_is_refused(work, workspace, outside):
    (workspace / "link").symlink_to(outside / "secret.txt")
    for name, arguments in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old_string": "the", "new_string": "no"}),
        ("get_file_info", {}),
        ("grep_files", {"pattern": "secret"}),
    ):
        assert "outside of what tools may touch" in await work.refused(name, {"path": "link", **arguments})
    assert (outside / "secret.txt").read_text() == SECRET


async def test_a_link_in_the_middle_of_a_path_is_refused(work, workspace, outside):
    (workspace / "mine.txt").write_text("mine")
    (workspace / "door").symlink_to(outside, target_is_directory=True)
    await every_way(work, "door/secret.txt")
    await every_way(work, "door/../outside/secret.txt")


async def test_a_file_that_does_not_exist_yet_behind_a_link_is_refused(work, workspace, outside):
    (workspace / "door").symlink_to(outside, target_is_directory=True)
    (workspace / "dangling").symlink_to(outside / "new.txt")
    for path in ("door/new.txt", "door/new/deep.txt", "dangling"):
        assert "outside" in await work.refused("write_file", path=path, content="x")
    assert [file.name for file in outside.iterdir()] == ["secret.txt"]


async def test_a_chain_of_links_is_followed_to_its_end(work, workspace, outside):
    (workspace / "b").symlink_to(outside)
    (workspace / "a").symlink_to("b")
    assert "outside" in await work.refused("read_file", path="a/secret.txt")


async def test_links_that_stay_inside_work(work, workspace):
    (workspace / "real").mkdir()
    (workspace / "real" / "f.txt").write_text("inside")
    (workspace / "link").symlink_to("real")
    assert (await work("read_file", path="link/f.txt"))["content"] == "inside"
    await work("write_file", path="link/f.txt", content="new")
    assert (workspace / "real" / "f.txt").read_text() == "new"
    assert (workspace / "link").is_symlink()


async def test_links_in_a_circle_are_an_error(work, workspace):
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    assert "link" in await work.refused("read_file", path="a/x")
    assert "link" in await work.refused("write_file", path="a", content="x")


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
async def test_what_is_no_path_is_refused(work, path):
    assert "cannot be used as a path" in await work.refused("read_file", path=path)


async def test_a_name_that_is_too_long_is_an_error(work):
    assert "too long" in await work.refused("write_file", path="x" * 300, content="")
    await work.refused("read_file", path="x/" * 5000)


async def test_tilde_is_the_users_directory_and_checked_like_any_other(workshop, tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / "allowed").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    work = workshop(home / "allowed")
    assert "outside" in await work.refused("read_file", path="~/secret")
    assert "outside" in await work.refused("read_file", path="~")
    await work("write_file", path="~/allowed/a.txt", content="x")
    assert (home / "allowed" / "a.txt").exists()
    await work("write_file", path="~b", content="x")  # a name like any other
    assert (home / "allowed" / "~b").exists()


async def test_a_folder_whose_name_begins_the_same_is_not_the_allowed_one(work, workspace):
    beside = workspace.parent / "workspace-2"
    beside.mkdir()
    (beside / "x").write_text("x")
    assert "outside" in await work.refused("read_file", path=str(beside / "x"))


async def test_another_spelling_of_an_allowed_folder_is_refused(work, workspace):
    assert "outside" in await work.refused("read_file", path=str(workspace).upper() + "/x")


async def test_nothing_set_means_the_workspace_only(work, workspace):
    assert work.context.allowed_paths == (workspace.resolve(),)


async def test_a_slash_means_everything(workshop, workspace, outside):
    work = workshop(workspace, ["/"])
    assert (await work("read_file", path=str(outside / "secret.txt")))["content"] == SECRET


async def test_folders_of_the_settings_replace_the_workspace(workshop, workspace, outside):
    work = workshop(workspace, [str(outside)])
    assert (await work("read_file", path=str(outside / "secret.txt")))["content"] == SECRET
    assert str(outside) in await work.refused("write_file", path="mine.txt", content="x")


async def test_the_setting_reaches_the_tools(workshop, workspace, outside, tmp_path):
    """A restriction that is configured and has no effect would be worse than none."""
    (tmp_path / "pegasus.toml").write_text(f"[tools]\nallowed_paths = ['{outside}', 'sub']")
    work = workshop(workspace, load_settings(SettingsSource(tmp_path / "pegasus.toml"), {}).tools.allowed_paths)
    assert (await work("read_file", path=str(outside / "secret.txt")))["content"] == SECRET
    assert "outside" in await work.refused("write_file", path="mine.txt", content="x")
    (workspace / "sub").mkdir()
    await work("write_file", path="sub/mine.txt", content="x")


async def test_an_allowed_folder_that_is_a_link_is_what_it_points_to(workshop, workspace, outside, tmp_path):
    (tmp_path / "alias").symlink_to(outside)
    work = workshop(workspace, [str(tmp_path / "alias")])
    assert (await work("read_file", path=str(outside / "secret.txt")))["content"] == SECRET
    assert (await work("read_file", path=str(tmp_path / "alias" / "secret.txt")))["content"] == SECRET


async def test_the_error_names_what_is_allowed(work, workspace):
    words = await work.refused("read_file", path="/etc/passwd")
    assert str(workspace.resolve()) in words
    assert "/etc/passwd" in words


async def test_a_context_that_allows_nothing_allows_nothing(work):
    work.context = attrs.evolve(work.context, allowed_paths=())
    assert "nothing" in await work.refused("read_file", path="a")


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/self/cwd/x", "/dev/null", "/dev/stdin", "/sys/kernel/uevent_seqnum"]
)
async def test_the_doors_of_the_system_are_never_opened(workshop, workspace, path):
    """Not even where everything is allowed: /proc/self/environ holds the daemon's keys."""
    work = workshop(workspace, ["/"])
    words = await work.refused("read_file", path=path)
    assert "operating system" in words or "outside" in words or "no such file" in words


async def test_pipes_and_sockets_are_named_and_not_waited_for(work, workspace):
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(workspace / "door"))
        with trio.fail_after(10):
            assert "a named pipe" in await work.refused("read_file", path="pipe")
            assert "a socket" in await work.refused("read_file", path="door")
            assert "a named pipe" in await work.refused("write_file", path="pipe", content="x")
            assert "a named pipe" in await work.refused("edit_file", path="pipe", old_string="a", new_string="b")
            assert (await work("grep_files", pattern="x"))["totalMatches"] == 0
            assert (await work("get_file_info", path="pipe"))["note"] == "it is a named pipe"


# ------------------------------------------------------------------ between the check and the use


def test_a_link_put_in_the_way_after_the_check_is_refused(workspace, outside):
    """The folder is exchanged for a link in the moment between `locate` and opening."""
    (workspace / "sub").mkdir()
    (workspace / "sub" / "secret.txt").write_text("harmless")
    context = base_context(workspace, (), 0)
    place = locate(context, "sub/secret.txt")
    (workspace / "sub").rename(workspace / "old")
    (workspace / "sub").symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|symbolic"), folder_of(place):
        pass


def test_a_file_exchanged_for_a_link_after_the_check_is_refused(workspace, outside):
    (workspace / "f").write_text("harmless")
    place = locate(base_context(workspace, (), 0), "f")
    (workspace / "f").unlink()
    (workspace / "f").symlink_to(outside / "secret.txt")
    with folder_of(place) as folder, pytest.raises((OSError, ToolError), match="link"):
        open_file(folder, place.name, "f")


def test_a_file_exchanged_for_a_link_between_stat_and_open_is_refused(workspace, outside, monkeypatch):
    (workspace / "f").write_text("harmless")
    place = locate(base_context(workspace, (), 0), "f")
    require = paths_module.require_file

    def exchange(status, shown):
        require(status, shown)
        (workspace / "f").unlink()
        (workspace / "f").symlink_to(outside / "secret.txt")

    monkeypatch.setattr(paths_module, "require_file", exchange)
    with folder_of(place) as folder, pytest.raises(OSError, match="symbolic links"):
        open_file(folder, place.name, "f")


def test_a_folder_moved_away_does_not_lead_the_work_elsewhere(workspace, outside):
    """What is done by descriptor is done in the folder that was checked, wherever its name points to now."""
    (workspace / "sub").mkdir()
    place = locate(base_context(workspace, (), 0), "sub/new.txt")
    with folder_of(place) as folder:
        (workspace / "sub").rename(workspace / "moved")
        (workspace / "sub").symlink_to(outside)
        os.close(os.open(place.name, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    assert (workspace / "moved" / "new.txt").exists()
    assert not (outside / "new.txt").exists()


def test_no_descriptor_is_left_open(workspace):
    (workspace / "a").mkdir()
    context = base_context(workspace, (), 0)
    before = len(os.listdir("/proc/self/fd"))
    with folder_of(locate(context, "a/b")):
        pass
    with pytest.raises(OSError, match="No such"), folder_of(locate(context, "x/y/z")):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


# ------------------------------------------------------------------ any path


@given(
    st.lists(st.sampled_from(["..", ".", "a", "b", "out", "in", "up", "", "~", "x"]), min_size=1, max_size=8).map(
        "/".join
    )
)
def test_no_path_of_any_kind_leaves_the_allowed_folder(tmp_path_factory, path):
    """Against the kernel's own opinion: where the path can be opened at all, it leads inside or was refused."""
    root = tmp_path_factory.getbasetemp() / "any"
    workspace = root / "w"
    if not root.exists():
        (workspace / "a" / "b").mkdir(parents=True)
        (root / "outside").mkdir()
        (workspace / "out").symlink_to(root / "outside")
        (workspace / "in").symlink_to("a/b")
        (workspace / "a" / "up").symlink_to("..")
        (workspace / "up").symlink_to("../..")
    context = ToolContext(workspace=workspace, allowed_paths=(workspace.resolve(),))
    joined = os.path.join(workspace, os.path.expanduser(path) if path == "~" or path.startswith("~/") else path)
    inside = Path(os.path.realpath(joined)).is_relative_to(workspace.resolve())
    try:
        place = locate(context, path)
    except ToolError:
        assert not inside or path == ""
    else:
        assert inside
        assert place.real == os.path.realpath(joined)


# ------------------------------------------------------------------ the context of this installation


def test_a_working_directory_must_be_an_allowed_folder_that_exists(workspace):
    (workspace / "sub").mkdir()
    (workspace / "file").touch()
    context = base_context(workspace, (), 0)
    assert real_folder(context, "sub") == str(workspace.resolve() / "sub")
    assert real_folder(context, ".") == str(workspace.resolve())
    for bad in ("file", "missing", ".."):
        with pytest.raises(ToolError):
            real_folder(context, bad)


def test_a_result_may_have_a_share_of_the_context_window(workspace):
    assert base_context(workspace, (), 128_000).max_result == 25_600
    assert base_context(workspace, (), 1_000_000).max_result == 200_000
    assert base_context(workspace, (), 100).max_result == MIN_RESULT
