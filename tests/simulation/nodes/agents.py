"""What runs on a node beside the journal: agents of chats, the schedule, and the switchboard that hands replies to clients.

An agent does what the Main Agent does, and nothing else: it reads the session, records a message, thinks, records the thought, posts
what it has decided and the results with it, and says that the item is done. Who is started and ended when is decided by the real
`pegasus.main_agent.chats`.
"""

from __future__ import annotations

import json
from functools import partial

import trio

from actors import open_pool
from pegasus.main_agent.chats import _Chats
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.retry import Pauses
from pegasus.storage import (
    Accept,
    Commit,
    CompleteItem,
    NextItem,
    NextReplies,
    Post,
    ReadFile,
    StorageError,
    TakeItem,
    chat_owner,
)
from pegasus.storage.one_owner import while_owner
from pegasus.wire import encode_line
from tests.faults.checker import due_replies


class _Services:
    """As much of `AgentServices` as `_Chats` needs."""

    max_active_chats = 2

    def __init__(self):
        self.config = self.now = self

    def for_chat(self, address):
        return self


async def agents(inbox, journal, node):
    """Run the agents of chats of this node."""
    async with open_pool() as pool, trio.open_nursery() as nursery:
        chats = _Chats(journal, _Services(), partial(agent, journal=journal, node=node), pool, nursery)
        nursery.start_soon(chats.start_due_agents)
        nursery.start_soon(chats.end_lost_agents)
        async for _ in inbox:
            pass
        nursery.cancel_scope.cancel()


async def agent(inbox, *, journal, node, services, chat, note_work, lease):
    """Work on the items of one chat until the agent is stopped."""
    content = await journal.ask(ReadFile, session_path(chat))
    session = _Session(journal, chat, lease, [json.loads(line) for line in content.splitlines()])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_work, session, node, note_work)
        async for _ in inbox:
            pass
        nursery.cancel_scope.cancel()


def session_path(chat):
    return f"sessions/{chat_owner(chat).partition('/')[2]}.jsonl"


async def _work(session, node, note_work):
    """Work on the items that the session shows, then on those that wait."""
    ask = session.journal.ask
    for n in reversed(session.items()):
        if (item := await ask(TakeItem, n, None, session.lease)) is None:
            break
        await _work_on(item, session, node, note_work)
    while True:
        await _work_on(await ask(NextItem, "main", session.chat), session, node, note_work)


async def _work_on(item, session, node, note_work):
    note_work(True)
    text = item.message.text
    if item.n not in session.items():
        await session.write([{"role": "user", "content": text, "metadata": {"item": item.n}}])
    turn = session.turn(item.n)
    calls = [call for line in turn for call in line.get("toolCalls", ())]
    if not calls:
        await node.think(session.chat, item, text)
        job = next((job for job in node.jobs if text == f"job {job.name}"), None)
        to = item.message.channel if job is None else job.to
        calls = [
            {"id": f"call_{item.n}_{i}", "name": "reply", "arguments": {"text": reply, "to": [to.type, to.channel_id]}}
            for i, reply in enumerate(due_replies(text) if job is None else [text])
        ]
        await session.write([{"role": "assistant", "toolCalls": calls}])
    done = {line["toolCallId"] for line in turn if line["role"] == "tool"}
    for call in calls:
        if call["id"] not in done:
            result = {"role": "tool", "toolCallId": call["id"], "content": '{"queued":true}'}
            await session.write([result], call)
    await session.journal.tell(CompleteItem(item.n, session.lease))
    note_work(False)


class _Session:
    """The lines of a session, as the agent knows them."""

    def __init__(self, journal, chat, lease, lines):
        self.journal = journal
        self.chat = chat
        self.lease = lease
        self.lines = lines

    def items(self):
        return [line["metadata"]["item"] for line in self.lines if line["role"] == "user"]

    def turn(self, n):
        """The lines behind the message of an item."""
        start = next(i for i, line in enumerate(self.lines) if line.get("metadata", {}).get("item") == n)
        return self.lines[start + 1 :]

    async def write(self, lines, call=None):
        """Append, and post the reply of a call; again until it is known that it is done."""
        posts = ()
        if call is not None:
            to = ChannelInfo(*call["arguments"]["to"])
            posts = (Post(f"{self.chat}/{call['id']}", call["arguments"]["text"], to.channel_id, to, to=to),)
        data = b"".join(map(encode_line, lines))
        pauses = Pauses(0.1, 1.0)
        while True:
            try:
                with trio.CancelScope(shield=True):
                    appends = ((session_path(self.chat), data),)
                    await self.journal.ask(Commit, appends, posts, self.lease, (), len(self.lines))
                break
            except StorageError:
                await trio.sleep(pauses.next())
        self.lines += lines


async def schedule(inbox, journal, node):
    """Accept an item for each job that is due, on one node at a time."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(while_owner, journal, "schedule", partial(_run_jobs, journal, node))
        async for _ in inbox:
            pass
        nursery.cancel_scope.cancel()


async def _run_jobs(journal, node):
    with node.alone("schedule"):
        for job in sorted(node.jobs, key=lambda job: job.due):
            await trio.sleep_until(job.due)
            message = InboundMessage(f"job {job.name}", job.place, f"\x1fjob:{job.name}")
            while True:
                try:
                    await journal.ask(Accept, message, "main", 2, True)
                    break
                except StorageError:
                    await trio.sleep(0.5)
        await trio.sleep_forever()


async def switchboard(inbox, journal, node):
    """Hand replies to the clients that are connected here."""
    node.journal = journal
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_hand_on, journal, node)
            async for _ in inbox:
                pass
            nursery.cancel_scope.cancel()
    finally:
        node.lose_clients()


async def _hand_on(journal, node):
    position = 0
    while True:
        for due in await journal.ask(NextReplies, position):
            node.deliver(due.message)
            position = due.position
