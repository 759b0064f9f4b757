"""The owner's files in the workspace: part of the prompt, bounded, read again when they change, harmless whatever they are."""

import os

import pytest
import trio

from pegasus.identity import TASK_FILES, WORKSPACE_FILES, WorkspaceFiles
from pegasus.identity.workspace_files import MAX_LEAN_TEXT, MAX_TEXT
from pegasus.settings import ModelSettings, Settings
from pegasus.testing.scripted import ScriptedModel, call, reply, say
from pegasus.testing.world import CLI, open_world

ALL = WORKSPACE_FILES


@pytest.fixture
def files(tmp_path):
    return WorkspaceFiles(tmp_path, in_thread=False)


def section(files, names=ALL, **options):
    files.load()
    return files.section(names, **options)


def test_without_files_there_is_nothing(files):
    assert section(files) == ""


@pytest.mark.parametrize("content", ["", " \n\t\n", "\0\0"])
def test_a_blank_file_leaves_nothing(files, tmp_path, content):
    (tmp_path / "USER.md").write_text(content)
    assert section(files) == ""


def test_all_files_stand_in_a_fixed_order(files, tmp_path):
    for name in sorted(ALL):
        (tmp_path / name).write_text(f"text of {name}\n")
    text = section(files)
    assert [line for line in text.splitlines() if line.startswith("### ")] == [f"### {name}" for name in ALL]
    assert text.index("text of IDENTITY.md") < text.index("text of AGENTS.md")


def test_other_files_are_not_read(files, tmp_path):
    (tmp_path / "NOTES.md").write_text("secret")
    (tmp_path / "agents.md").write_text("secret")
    assert "secret" not in section(files)


def test_each_file_is_bounded(files, tmp_path):
    (tmp_path / "SOUL.md").write_text("é" * 50_000)
    assert section(files).count("é") == MAX_TEXT - 1
    assert section(files, lean=True).count("é") == MAX_LEAN_TEXT - 1
    assert section(files).endswith("…")


def test_bytes_that_are_no_text_do_no_harm(files, tmp_path):
    (tmp_path / "SOUL.md").write_bytes(b"kind\xff\x1b[31m\r\nfirm\x00 \xed\xa0\x80")
    assert "kind\ufffd[31m\nfirm" in section(files)


def test_a_link_is_not_followed(files, tmp_path):
    secret = tmp_path / "elsewhere"
    secret.write_text("password")
    (tmp_path / "AGENTS.md").symlink_to(secret)
    assert section(files) == ""


def test_a_pipe_or_folder_does_not_hang_or_fail(files, tmp_path):
    os.mkfifo(tmp_path / "USER.md")
    (tmp_path / "SOUL.md").mkdir()
    assert section(files) == ""


def test_a_missing_folder_is_no_mistake(tmp_path):
    assert section(WorkspaceFiles(tmp_path / "nowhere")) == ""


def test_an_unchanged_file_is_not_read_again(files, tmp_path, monkeypatch):
    (tmp_path / "USER.md").write_text("Ada")
    before = section(files)
    monkeypatch.setattr(os, "open", None)
    assert section(files) == before
    assert files.version == 1


async def test_files_that_have_not_changed_are_looked_at_without_a_thread(tmp_path, autojump_clock):
    (tmp_path / "USER.md").write_text("Ada")
    (tmp_path / "SOUL.md").write_text("\n")  # blank, as it often is
    files = WorkspaceFiles(tmp_path)
    files.load()
    threads = trio.to_thread.current_default_thread_limiter()
    for number in range(int(threads.total_tokens)):
        threads.acquire_on_behalf_of_nowait(number)
    with trio.fail_after(1):
        await files.refresh()
    (tmp_path / "AGENTS.md").write_text("Write tests first.")
    with pytest.raises(trio.TooSlowError), trio.fail_after(1):  # to be read, which waits for a thread
        await files.refresh()
    threads.release_on_behalf_of(0)
    await files.refresh()
    assert "Write tests first." in files.section(ALL)


def test_a_task_gets_the_rules_of_work_only(files, tmp_path):
    for name in ALL:
        (tmp_path / name).write_text(f"text of {name}")
    assert "text of AGENTS.md" in section(files, TASK_FILES)
    assert "text of USER.md" not in section(files, TASK_FILES)


async def test_an_edit_counts_from_the_next_message_on(files, tmp_path, autojump_clock):
    model = ScriptedModel([say("", reply(f"c{n}", "ok")) for n in range(4)])
    prompts = []
    async with open_world(model, files=files) as world:
        for change in (None, "My name is Ada.", "My name is Ada.", ""):
            if change is not None:
                (tmp_path / "USER.md").write_text(change)
            await world.say("hi", CLI)
            await world.next_reply()
            prompts.append(model.requests[-1].system)
    assert "Ada" not in prompts[0]
    assert prompts[1].endswith("### USER.md\n\nMy name is Ada.")
    assert prompts[1].startswith(prompts[0])
    assert prompts[2] == prompts[1]
    assert prompts[3] == prompts[0]


async def test_a_change_during_a_message_waits_for_the_next_one(files, tmp_path, autojump_clock):
    def step(request):
        (tmp_path / "SOUL.md").write_text(f"{len(model.requests)}")
        return say("", call("current_time", f"t{len(model.requests)}"), *[reply("r", "x")] * (len(model.requests) == 2))

    model = ScriptedModel(step)
    async with open_world(model, files=files) as world:
        await world.say("hi", CLI)
        await world.next_reply()
        assert model.requests[0].system == model.requests[1].system


async def test_small_models_and_tasks_are_told_too(files, tmp_path, autojump_clock):
    (tmp_path / "AGENTS.md").write_text("Write tests first.")
    (tmp_path / "USER.md").write_text("Ada " * 1_000)
    spawn = say("", call("spawn_subagent", "c", description="d", input="i"))
    model, work = ScriptedModel([spawn, *[say("")] * 3]), ScriptedModel([say("done")])
    settings = Settings(models=ModelSettings(context_window=8_192))
    async with open_world(model, task_model=work, settings=settings, files=files) as world:
        await world.say("hi", CLI)
        await world.idle()
    assert "Write tests first." in model.requests[0].system
    assert 100 < model.requests[0].system.count("Ada") < 200
    assert work.requests[0].system.endswith("### AGENTS.md\n\nWrite tests first.")
