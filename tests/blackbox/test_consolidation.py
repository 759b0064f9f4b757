"""The real process is killed while it consolidates a conversation: the notes have everything once."""

from __future__ import annotations

import json
import random
import re
import stat

import pytest
import trio

from tests.blackbox.support import Book, Daemon, Thought, serving, until

CHATS = {"agent.scope": "chat", "session.memory_window": 6}


class Secretary(Book):
    """Echoes messages, and says which of them have left the window."""

    def __init__(self) -> None:
        super().__init__()
        self.consolidations = 0

    async def __call__(self, request):
        if "historyEntry" not in request.system:
            return await super().__call__(request)
        self.consolidations += 1
        told = ",".join(re.findall(r"wrote: number (\d+)", request.turns[0].text))
        notes = {"historyEntry": f"told of {told}", "memoryUpdate": "- Likes tea\n- Counts for fun"}
        return Thought(json.dumps(notes))


def told_of(text: str) -> list[int]:
    return [int(number) for part in re.findall("^told of (.+)$", text, re.MULTILINE) for number in part.split(",")]


@pytest.mark.deadline(90)
async def test_killed_at_random_moments_of_consolidation(tmp_path):
    book, choices, number = Secretary(), random.Random(11), 0
    async with serving(tmp_path, book, CHATS) as daemon:
        notes = daemon.home / "workspace" / "memory"
        for _ in range(4):
            before = book.consolidations
            async with daemon.client(
                "web", "c1", lastSeq=number
            ) as client:  # an acknowledgement may die with the process
                while book.consolidations == before:
                    assert await client.ask(f"number {number}", f"id-{number}") == f"echo: number {number}"
                    number += 1
            await trio.sleep(choices.random() * 0.05)
            daemon.kill()
            await daemon.start()
        async with daemon.client("web", "c1", lastSeq=number) as client:
            assert await client.ask("number 1000") == "echo: number 1000"
        await until(lambda: is_settled(daemon), "written notes")
        history = (notes / "HISTORY.md").read_text()
        found = told_of(history)
        assert found == list(range(len(found))), "each once, in order"
        assert len(found) >= number - 6
        [month] = notes.glob("HISTORY-*.md")
        assert month.read_text() == history
        assert (notes / "MEMORY.md").read_text() == "- Likes tea\n- Counts for fun\n"
        assert stat.S_IMODE((notes / "MEMORY.md").stat().st_mode) == 0o600
        sessions = (daemon.home / "data" / "sessions").glob("*.jsonl")
        everything = "".join(path.read_text() for path in sessions)
        assert all(f"number {n}" in everything for n in range(number))


def is_settled(daemon: Daemon) -> bool:
    lines = (daemon.home / "data" / "sessions" / "web%3Ac1.jsonl").read_text().splitlines()
    facts = [json.loads(line).get("metadata", {}) for line in lines]
    done = [metadata["consolidation"] for metadata in facts if metadata.get("type") == "consolidated"]
    users = [metadata for metadata in facts if "item" in metadata]
    return facts[0]["consolidation"]["id"] in done and len(users) <= 3
