"""The texts of the prompt are the owner's: what was changed while a program ran does not count before an owner has accepted it."""

import os

import pytest

from pegasus.identity import WORKSPACE_FILES, WorkspaceFiles


@pytest.fixture
def start(tmp_path):
    """Begin a run of the agent, which reads what the one before has left."""
    (tmp_path / "workspace").mkdir()

    def start():
        files = WorkspaceFiles(tmp_path / "workspace", tmp_path / "owner-texts.json", in_thread=False)
        files.load()
        return files

    return start


@pytest.fixture
def rules(tmp_path, start):
    path = tmp_path / "workspace" / "AGENTS.md"
    path.write_text("the owner's")
    return path


def text(files):
    return files.section(WORKSPACE_FILES).rpartition("\n")[2]


async def changed_by_a_program(files, change):
    async with files.running_program():
        change()
    await files.refresh()


async def test_what_a_program_writes_does_not_count(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: rules.write_text("evil"))
    assert text(files) == "the owner's"
    assert files.doubted == {"AGENTS.md": "evil"}


async def test_a_file_that_a_program_makes_does_not_count(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: rules.with_name("SOUL.md").write_text("evil"))
    assert "evil" not in files.section(WORKSPACE_FILES)


async def test_what_an_owner_has_said_yes_to_before_it_was_written_counts_once(start, rules):
    files = start()
    async with files.running_program():
        files.expect("AGENTS.md", b"agreed\n")
        rules.write_text("agreed\n")
        await files.refresh()
        assert (text(files), files.doubted) == ("agreed", {})
        rules.write_text("evil")
        await files.refresh()
        rules.write_text("agreed")
        await files.refresh()
        rules.write_text("the owner's")
        await files.refresh()
    assert files.doubted == {"AGENTS.md": "the owner's"}
    assert text(start()) == "agreed"


async def test_a_yes_to_a_change_covers_no_text_around_it_that_nobody_has_seen(start, rules):
    files = start()
    async with files.running_program():
        files.expect("AGENTS.md", b"the owner's. Be brief.", b"the owner's\n")
        rules.write_text("the owner's. Be brief.")
        await files.refresh()
        assert text(files) == "the owner's. Be brief."
        rules.write_text("evil. Be brief.")
        files.expect("AGENTS.md", b"evil. Be long.", b"evil. Be brief.")
        rules.write_text("evil. Be long.")
        await files.refresh()
    assert text(files) == "the owner's. Be brief."
    assert files.doubted == {"AGENTS.md": "evil. Be long."}


async def test_a_yes_to_a_file_that_is_no_part_of_the_prompt_changes_nothing(start, rules):
    files = start()
    files.expect("../guests/eve/AGENTS.md", b"evil")
    await changed_by_a_program(files, lambda: rules.write_text("evil"))
    assert files.doubted == {"AGENTS.md": "evil"}


async def test_what_the_agent_looks_after_is_guarded_like_the_prompt(start, rules):
    files = start()
    heartbeat = rules.with_name("HEARTBEAT.md")
    heartbeat.write_text("Look at the mail.")
    await changed_by_a_program(files, lambda: heartbeat.write_text("evil"))
    assert files.text("HEARTBEAT.md") == "Look at the mail."
    assert "mail" not in files.section(WORKSPACE_FILES)


async def test_a_program_cannot_take_a_text_away(start, rules):
    files = start()
    await changed_by_a_program(files, rules.unlink)
    assert text(files) == "the owner's"
    assert files.doubted == {"AGENTS.md": ""}


@pytest.mark.parametrize("kind", ["symbolic link", "pipe", "folder"])
async def test_nor_by_something_else_in_its_place(start, rules, kind):
    def change():
        rules.unlink()
        match kind:
            case "symbolic link":
                rules.symlink_to("/etc/passwd")
            case "pipe":
                os.mkfifo(rules)
            case "folder":
                rules.mkdir()

    files = start()
    await changed_by_a_program(files, change)
    assert text(files) == "the owner's"


async def test_a_time_of_change_that_is_set_back_hides_nothing(start, rules):
    files = start()
    before = rules.stat()

    def change():
        rules.write_text("Tom's owner")
        os.utime(rules, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert len("Tom's owner") == before.st_size
    async with files.running_program():
        change()
        await files.refresh()
        assert files.doubted == {"AGENTS.md": "Tom's owner"}


async def test_a_second_name_of_the_file_is_no_way_to_change_it_later(start, rules):
    """The program leaves a hard link. A tool that writes to the other name, when no program runs, changes the prompt as little."""
    files = start()
    other = rules.with_name("notes.md")
    await changed_by_a_program(files, lambda: os.link(rules, other))
    with other.open("w") as stream:
        stream.write("evil")
    await files.refresh()
    assert text(files) == "the owner's"
    assert files.doubted == {"AGENTS.md": "evil"}


async def test_an_edit_counts_at_once_when_no_program_runs(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: None)
    rules.write_text("the owner's second")
    await files.refresh()
    assert text(files) == "the owner's second"


async def test_an_edit_just_before_a_program_begins_counts(start, rules):
    files = start()
    rules.write_text("the owner's second")
    async with files.running_program():
        await files.refresh()
        assert text(files) == "the owner's second"


async def test_an_edit_while_a_program_runs_counts_once_it_is_accepted(start, rules):
    files = start()
    version = files.version
    async with files.running_program():
        rules.write_text("the owner's second")
        await files.refresh()
        assert text(files) == "the owner's"
        await files.doubt.wait(0)
        assert await files.accept("AGENTS.md", files.doubted["AGENTS.md"])
        assert text(files) == "the owner's second"
    assert files.doubted == {}
    assert files.version == version + 1


async def test_a_yes_is_for_exactly_one_text(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: rules.write_text("harmless"))
    await changed_by_a_program(files, lambda: rules.write_text("evil"))
    assert not await files.accept("AGENTS.md", "harmless")
    assert text(files) == "the owner's"


async def test_two_programs_at_a_time_are_two(start, rules):
    files = start()
    async with files.running_program():
        async with files.running_program():
            pass
        rules.write_text("evil")
        await files.refresh()
    assert text(files) == "the owner's"


async def test_a_doubt_is_over_when_the_owner_writes_something_else(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: rules.write_text("evil"))
    rules.write_text("the owner's second")
    await files.refresh()
    assert text(files) == "the owner's second"
    assert files.doubted == {}


async def test_a_doubt_is_over_when_the_file_is_as_it_was(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: rules.write_text("evil"))
    rules.write_text("the owner's")
    await files.refresh()
    assert files.doubted == {}


# ------------------------------------------------------------------ restarts


async def test_after_a_crash_what_a_program_has_written_does_not_count(start, rules):
    files = start()
    async with files.running_program():
        rules.write_text("evil")
        after = start()
    assert text(after) == "the owner's"
    assert after.doubted == {"AGENTS.md": "evil"}


async def test_a_program_that_runs_after_an_edit_is_not_believed_after_a_crash(start, rules):
    """The edit was noted meanwhile, which does not say that no program runs."""
    files = start()
    await changed_by_a_program(files, lambda: None)
    rules.write_text("the owner's second")
    await files.refresh()
    async with files.running_program():
        rules.write_text("evil")
        after = start()
    assert text(after) == "the owner's second"
    assert after.doubted == {"AGENTS.md": "evil"}


async def test_what_was_accepted_is_so_after_a_crash(start, rules):
    files = start()
    async with files.running_program():
        rules.write_text("the owner's second")
        await files.refresh()
        assert await files.accept("AGENTS.md", "the owner's second")
        after = start()
    assert text(after) == "the owner's second"
    assert after.doubted == {}


async def test_an_edit_just_before_an_orderly_stop_counts(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: None)
    rules.write_text("the owner's second")
    files.close()
    assert text(start()) == "the owner's second"


async def test_what_is_doubted_stays_so_after_an_orderly_stop(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: rules.write_text("evil"))
    files.close()
    assert start().doubted == {"AGENTS.md": "evil"}


@pytest.mark.parametrize("has_run", [True, False])
async def test_an_edit_between_two_runs_counts(start, rules, has_run):
    files = start()
    if has_run:
        await changed_by_a_program(files, lambda: None)
    files.close()
    rules.write_text("the owner's second")
    assert text(start()) == "the owner's second"


async def test_an_edit_after_a_program_counts_after_a_crash_too(start, rules):
    files = start()
    await changed_by_a_program(files, lambda: None)
    rules.write_text("the owner's second")
    await files.refresh()
    after = start()
    assert text(after) == "the owner's second"
    assert after.doubted == {}


async def test_an_orderly_run_after_a_crash_ends_the_doubt_about_later_edits(start, rules):
    async with start().running_program():
        start().close()
    rules.write_text("the owner's second")
    assert text(start()) == "the owner's second"


async def test_a_record_that_cannot_be_read_makes_every_file_doubted(start, rules, tmp_path):
    files = start()
    await changed_by_a_program(files, lambda: None)
    (tmp_path / "owner-texts.json").write_text("{")
    after = start()
    assert text(after) == ""
    assert after.doubted == {"AGENTS.md": "the owner's"}


async def test_no_program_runs_where_that_cannot_be_noted(start, rules, tmp_path):
    files = start()
    (tmp_path / "owner-texts.json").mkdir()
    with pytest.raises(OSError, match="cannot be written"):
        async with files.running_program():
            pytest.fail("it ran")
