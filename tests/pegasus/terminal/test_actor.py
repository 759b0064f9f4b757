"""The terminal as an actor beside the daemon."""

from __future__ import annotations

from random import Random

import pytest
import trio

from actors import Child, open_supervisor
from pegasus.client import Endpoint
from pegasus.terminal import chat as chat_module
from pegasus.terminal import terminal


class FakeChat:
    """Stands for the chat: `leave` ends it."""

    def __init__(self):
        self.calls = []
        self.began = trio.Event()
        self.leave = trio.Event()
        self.ended = False

    async def __call__(self, where, channel, history, random, *, most, own):
        self.calls.append((where, str(channel.address), history, most, own))
        self.began.set()
        try:
            await self.leave.wait()
        finally:
            self.ended = True
        return 0


@pytest.fixture
def fake(monkeypatch):
    fake = FakeChat()
    monkeypatch.setattr(chat_module, "chat", fake)
    return fake


def child(quits, tmp_path):
    arguments = ("ws://127.0.0.1:1", "token", tmp_path / "history", Random(1), quits.set, 5000)
    return Child("terminal", terminal, *arguments)


async def test_it_is_a_client_of_the_gateway_like_any_other(fake, tmp_path):
    async with open_supervisor([child(trio.Event(), tmp_path)]) as supervisor:
        await fake.began.wait()
        await supervisor.stop()
    assert fake.calls == [(Endpoint("ws://127.0.0.1:1", "token"), "cli:main", tmp_path / "history", 5000, True)]


async def test_leaving_the_chat_asks_for_the_end_and_waits_for_it(fake, tmp_path, capfd):
    quits = trio.Event()
    async with open_supervisor([child(quits, tmp_path)]) as supervisor:
        await fake.began.wait()
        fake.leave.set()
        await quits.wait()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(fake.calls) == 1  # not restarted
        await supervisor.stop()
    assert capfd.readouterr().err == "Stopping; Ctrl-C ends it at once.\n"


async def test_told_to_stop_it_ends_the_chat_and_asks_for_nothing(fake, tmp_path):
    quits = trio.Event()
    async with open_supervisor([child(quits, tmp_path)]) as supervisor:
        await fake.began.wait()
        await supervisor.stop()
    assert fake.ended
    assert not quits.is_set()
