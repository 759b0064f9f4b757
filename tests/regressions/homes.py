"""Homes that real agents have made in a few seconds, with something of everything that they can do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from pegasus.models.base import Usage
from pegasus.testing.provider.answers import Call, ProviderAnswer
from tests.blackbox.support import HANG, Daemon, Peer, Thought, View, refuse, reply, say, serving
from tests.blackbox.support.work import Office, act, answer, desk, heard, shell, task_id

OWNERS = ["cli:*", "web:*", "slack:ann"]
ASKED = [
    {"tool": "shell_exec", "match": "make *", "decision": "ask"},
    {"tool": "*", "who": "owner", "decision": "allow"},
]
SUMMARY = (
    "## Now\nmuch was tried\n## People\nweb:c1 cli:main slack:#general\n## Decisions and facts\nxyzzy\n## Open\nnone"
)


def _memory(name: str, **arguments: str) -> ProviderAnswer:
    return Thought("I note that.", (Call(f"memory_{name}", {"why": "asked to", "source": "user", **arguments}),))


def _cron(**arguments: object) -> ProviderAnswer:
    return Thought(calls=(Call("cron", arguments),))


def _made_job(view: View) -> str:
    return str(json.loads(view.results[0])["jobs"][-1].partition(":")[0]) if view.results else ""


PAGES = {
    "two": [Thought("I say two things.", (reply("first\nwith two lines"), reply("second")))],
    "tell the others": [Thought(calls=(reply("news for all", "#general", "slack", "17.4"), reply("I told them")))],
    "remember tea": [_memory("append", path="facts/user.md", entry="- Tea: green"), say("noted")],
    "remember coffee": [_memory("append", path="facts/user.md", entry="- Coffee: black"), say("noted, too")],
    "correct": [
        _memory("patch", path="facts/user.md", old_str="- Tea: green", new_str="- Tea: white, without sugar"),
        say("corrected"),
    ],
    "rewrite": [
        _memory("write", path="facts/plans.md", content="# Plans\n\n- Paint the shed\n- Count the boats"),
        say("done"),
    ],
    "look": [
        Thought(calls=(Call("memory_read", {"path": "facts/nothing.md"}),)),
        Thought(calls=(Call("memory_read", {"path": "facts/user.md"}), Call("memory_list", {}))),
        say("found it"),
    ],
    "often": [_cron(action="add", prompt="are the boats there?", every=2, name="boats"), say("every two seconds")],
    "later": [_cron(action="add", prompt="call Ann", delay=3600), say("in an hour")],
    "daily": [_cron(action="add", prompt="the news", cron="0 9 * * *", timezone="Europe/Berlin"), say("each morning")],
    "no boats": [
        _cron(action="list"),
        lambda view: _cron(action="remove", id=_made_job(view)),
        say("no boats any more"),
    ],
    "with null": [
        Thought(calls=(Call("memory_list", {"query": None}), Call("current_time", {"timezone": None}))),
        say("known"),
    ],
    "broken": refuse(400, "the model is on strike"),
    "long": HANG,
    "hangs": HANG,
}
JOBS = {
    "count": [
        act(shell("echo one two"), Call("notify", {"message": "half way"})),
        act(Call("read_file", {"path": "nowhere.txt"}), shell("echo three")),
        lambda view: answer(f"counted, the last was {view.last}"),
    ],
    "paint": [
        act(Call("ask_user", {"question": "Which colour?"})),
        lambda view: answer(f"painted {view.last}"),
    ],
    "build": [act(shell("make all")), lambda view: answer(f"built: {view.last}")],
    "rebuild": [act(shell("make again")), lambda view: answer(f"built: {view.last}")],
    "wait": HANG,
    "survive": [act(shell("echo before")), HANG],
}


class Clerk(Office):
    """Echoes what is not in its pages, works, and writes summaries. hangs: the jobs and pages that do not answer yet."""

    def __init__(self) -> None:
        super().__init__(JOBS, PAGES, desk)

    async def __call__(self, request):
        if "reply" not in request.tools and "notify" not in request.tools and "historyEntry" in request.system:
            return Thought(json.dumps({"historyEntry": "They counted.", "memoryUpdate": "- They count"}))
        if "reply" not in request.tools and "notify" not in request.tools and "memory_list" not in request.tools:
            return attrs.evolve(Thought(SUMMARY), usage=Usage(1_000, 20))
        found = await super().__call__(request)
        return attrs.evolve(found, usage=Usage(len(json.dumps(request.raw)) // 4, 20)) if found.status == 200 else found


async def make_homes(folder: Path) -> list[Path]:
    """Make all homes below a folder, and return them."""
    homes = []
    for make in (_everything, _chats, _compacted):
        (folder / make.__name__).mkdir(parents=True)
        homes.append(await make(folder / make.__name__))
    return homes


async def _everything(folder: Path) -> Path:
    clerk = Clerk()
    async with serving(folder, clerk, {"agent.owners": OWNERS, "agent.burst_cap": 5, "policy.rules": ASKED}) as daemon:
        async with daemon.client("web", "c1") as page, daemon.client("cli", "main") as terminal:
            for text in (
                "Hello World",
                "two",
                "/staus",
                "/status",
                "remember tea",
                "remember coffee",
                "correct",
                "rewrite",
            ):
                await _say(page, text, 2 if text == "two" else 1)
            await _say(terminal, "Good Morning")
            async with daemon.bridge("slack") as bridge:
                await _say(page, "tell the others")
                await bridge.ack(await bridge.reply())
                await _say(bridge, "In a Thread", channel=_by("ann", thread="17.5"))
                await _say(bridge, "I am Eve", channel=_by("eve", "D-eve"))
                await _say(bridge, "And again", channel=_by("eve", "D-eve"))
            for text in ("look", "with null", "later", "daily", "often"):
                await _say(page, text)
            await _tasks(daemon, page)
            await page.ack(await page.reply())  # the boats
            await _say(page, "no boats", until="no boats any more")
            clerk.hold()
            await page.say("burst one")
            await clerk.waiting()
            await page.say("burst two")
            await page.say("burst three")
            await trio.sleep(0.3)
            clerk.release()
            await heard(page, 2)
            await _say(page, "broken")
            await page.say("do wait")
            await clerk.thought("wait")
            await page.say("long")
            await clerk._until(lambda: bool(clerk.about("long")), "the long thought")
            await page.say("/stop")
            await _heard_until(page, lambda text: text.startswith("Stopped"))
            await trio.sleep(0.5)
            await page.say("do survive")
            await clerk.thought("survive", 2)
            await page.say("hangs")
            await clerk._until(lambda: bool(clerk.about("hangs")), "a thought that hangs")
            await trio.sleep(0.3)
        daemon.kill()
        clerk.pages["hangs"] = say("now I can")
        clerk.jobs["survive"] = [act(shell("echo before")), answer("survived")]
        await daemon.start()
        async with daemon.client("web", "c1", lastSeq=0) as page:
            await _heard_until(page, lambda text: "survived" in text)
            await _say(page, "/compact", until=None)
            await _say(page, "/new")
            await _say(page, "Hello Again")
            await trio.sleep(1.2)
    return daemon.home


async def _tasks(daemon: Daemon, page: Peer) -> None:
    """Have tasks done that call tools, ask something, and need a yes."""
    await page.say("do count")
    await _heard_until(page, lambda text: text.startswith("completed: counted"))
    await page.say("do paint")
    await _heard_until(page, lambda text: text.startswith("needs information"))
    await page.say(f"tell {task_id(daemon.home, 'paint')} blue")
    await _heard_until(page, lambda text: text.startswith("completed: painted"))
    for job, word in (("build", "/deny"), ("rebuild", "/approve")):
        await page.say(f"do {job}")
        shown = await page.get("approval", state="open")
        await page.say(f"{word} {shown['id']}")
        await _heard_until(page, lambda text: text.startswith("completed: built"))


async def _chats(folder: Path) -> Path:
    """A conversation for each chat, whose older messages become notes."""
    async with serving(folder, Clerk(), {"agent.scope": "chat", "session.memory_window": 6}) as daemon:
        async with daemon.client("web", "c1") as one, daemon.client("web", "c2") as two:
            for n in range(9):
                await _say(one, f"Number {n}")
                await _say(two, f"Letter {n}")
        await trio.sleep(1.2)
    return daemon.home


async def _compacted(folder: Path) -> Path:
    """One long conversation that is compacted by itself."""
    clerk = Clerk()
    async with serving(folder, clerk, {"models.context_window": 32_000}) as daemon, daemon.client("web", "c1") as page:
        for n in range(40):
            await _say(page, f"Message {n}: " + "one two three four five six seven " * 60)
        await trio.sleep(1.2)
    return daemon.home


def _by(user: str, channel_id: str = "#general", thread: str | None = None) -> dict[str, str]:
    return {"type": "slack", "channelId": channel_id, "userId": user, **({"replyTo": thread} if thread else {})}


async def _say(client: Peer, text: str, replies: int = 1, until: str | None = "", **more: object) -> None:
    """Say something, and wait for its replies; until: for one with this text. None: for any."""
    await client.say(text, **more)
    if until:
        await _heard_until(client, lambda heard: heard == until)
    else:
        await heard(client, replies)


async def _heard_until(client: Peer, is_it: Callable[[str], bool]) -> None:
    while not is_it((await heard(client))[0]):
        pass
