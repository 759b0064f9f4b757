"""Models of single chats: chosen by `/model` for one, kept over restarts, without an effect on another."""

from __future__ import annotations

from functools import partial

import pytest

from actors import Child, open_supervisor
from pegasus.messages import Address
from pegasus.models import ChatChoices
from pegasus.settings import ModelSettings
from pegasus.storage import ReplaceFile, StorageError, run_journal
from pegasus.testing.memory_disk import MemoryDisk
from tests.pegasus.models.test_model_command import PROVIDERS, models, switch_of

HERE, THERE = Address("web", "c1"), Address("slack", "#general")


async def test_a_choice_holds_for_its_chat_only():
    service = models()
    await service.chat_choices.choose(HERE, "lab/b")
    kept = service.for_chat(HERE).client("default", "conversation")
    names = [kept.name, service.for_chat(THERE).client().name, service.client().name]
    assert names == ["lab/b", "lab/a", "lab/a"]
    assert service.for_chat(HERE).client("subagent").name == "lab/a", "tasks are shared by all chats"
    await service.chat_choices.choose(HERE, "")
    assert kept.name == "lab/a", "a client follows the choice"


async def test_each_chat_chooses_and_goes_back_without_an_effect_on_the_other():
    service = models()
    here, there = (switch_of(service).for_chat(chat) for chat in (HERE, THERE))
    assert (await here.answer("lab/b")).startswith("Now using lab/b (before: lab/a). /model default")
    assert "I use lab/b (chosen with /model for this chat)." in await here.answer("")
    assert "I use lab/a (as in the settings)." in await there.answer("")
    assert "Still using lab/b." in await here.answer("nobody/x")
    assert await here.answer("default") == "Now using lab/a (before: lab/b)."
    assert service.chosen == ""


async def test_a_choice_that_the_settings_do_not_allow_any_more_waits_until_they_do():
    service = models()
    await service.chat_choices.choose(HERE, "lab/b")
    service.reload(ModelSettings(default="lab/a", choices=("lab/a",)), PROVIDERS)
    assert service.for_chat(HERE).client().name == "lab/a"
    service.reload(ModelSettings(default="lab/a"), PROVIDERS)
    assert service.for_chat(HERE).client().name == "lab/b"


async def test_choices_are_kept_over_restarts_and_a_full_disk_changes_nothing(autojump_clock):
    disk = MemoryDisk()
    async with open_supervisor() as root:
        journal = await root.start_child(Child("journal", partial(run_journal, clock=lambda: 0), disk))
        choices = ChatChoices()
        await choices.load(journal)
        await choices.choose(HERE, "lab/b")
        disk.files.capacity = 0
        with pytest.raises(StorageError):
            await choices.choose(THERE, "lab/c")
        assert choices.get(THERE) == ""
        disk.files.capacity = None
        again = ChatChoices()
        await again.load(journal)
        assert (again.get(HERE), again.get(THERE)) == ("lab/b", "")
        await journal.ask(ReplaceFile, "models/chats.json", b"[nonsense")
        await again.load(journal)
        assert again.get(HERE) == ""


async def test_a_choice_that_cannot_work_is_refused():
    service = models()
    answer = await switch_of(service).for_chat(HERE).answer("nobody/x")
    assert 'there is no provider "nobody"' in answer
    assert service.chat_choices.get(HERE) == ""
