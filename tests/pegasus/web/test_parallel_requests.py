"""Requests of one conversation at the same time: each is answered with what answers its own message, and with nothing else."""

import json

import pytest
import trio

from pegasus.messages import Address, ChannelInfo, ReplyDraft
from tests.pegasus.web.world import world

CHANNEL = ChannelInfo("api", "home/c1")
PATHS = {"completions": "/v1/chat/completions", "stream": "/v1/chat/completions", "rest": "/api/messages?wait=20"}


class Asking:
    """Requests under way, by their text, and the answers."""

    def __init__(self, there, client, nursery):
        self.there, self.client, self.nursery = there, client, nursery
        self.answers = {}
        self.pieces = {}
        self._scopes = {}

    async def begin(self, text, kind="completions", **headers):
        """Begin a request. Returns the number of its message, which is accepted by then."""
        n = len(self.there.journal.accepted) + 1
        self.nursery.start_soon(self._ask, text, kind, headers)
        await self.there.journal.until(lambda: any(waiting == n for waiting, _ in self.there.journal.waiting_for))
        return n

    async def _ask(self, text, kind, headers):
        body = {"text": text, "channel": {"channelId": "home/c1"}}
        if kind != "rest":
            body = {"model": "x", "user": "c1", "messages": [{"role": "user", "content": text}]}
            body["stream"] = kind == "stream"
        with trio.CancelScope() as self._scopes[text]:
            response = await self.client.post(PATHS[kind], json=body, headers=headers)
            assert response.status_code == 200, response.text
            self.answers[text] = text_of(response, kind)

    async def leave(self, text):
        """Have the client of a request hang up. Returns when the server knows."""
        self._scopes[text].cancel()
        with trio.fail_after(20):
            while not any(message.text == text for message in self.there.withdrawn):
                await trio.lowlevel.checkpoint()

    async def answer(self, text, item, said):
        """End the turn of a request with this reply, and wait until the client has its answer."""
        await self.there.say(CHANNEL, said, item=item)
        await self.there.journal.finish(item)
        await self.until_answered(text)

    async def until_answered(self, *texts):
        with trio.fail_after(20):
            while not self.answers.keys() >= set(texts):
                await trio.lowlevel.checkpoint()


def text_of(response, kind):
    if kind == "rest":
        assert response.json()["done"]
        return "\n\n".join(reply["text"] for reply in response.json()["replies"])
    if kind == "completions":
        return response.json()["choices"][0]["message"]["content"]
    chunks = [json.loads(line[6:]) for line in response.text.split("\n\n") if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


@pytest.fixture
async def asking():
    async with world() as there, there.owner() as client, trio.open_nursery() as nursery:
        yield Asking(there, client, nursery)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", PATHS)
async def test_each_of_many_requests_gets_its_own_answer(asking, kind):
    there = asking.there
    texts = [f"question {n}" for n in range(4)]
    items = {text: await asking.begin(text, kind) for text in texts}
    for text in reversed(texts):  # whatever the order
        draft = ReplyDraft(CHANNEL, f"to {text}", item=items[text])
        await there.supervisor.ref("gateway").tell(draft)
        await there.say(CHANNEL, f"to {text}", item=items[text])
    for text in texts:
        await there.journal.finish(items[text])
    await asking.until_answered(*texts)
    assert asking.answers == {text: f"to {text}" for text in texts}
    await there.journal.until(lambda: not there.journal.outbox[CHANNEL.address])  # all were had


async def test_an_answer_ends_with_its_turn_although_another_goes_on(asking):
    first, second = await asking.begin("first"), await asking.begin("second", "stream")
    await asking.answer("first", first, "one")
    await asking.answer("second", second, "two")
    assert asking.answers == {"first": "one", "second": "two"}


@pytest.mark.parametrize("kind", PATHS)
async def test_a_command_passes_a_request_and_is_not_in_its_answer(asking, kind):
    talk = await asking.begin("talk", kind)
    command = await asking.begin("/status", kind)
    await asking.answer("/status", command, "all is well")
    await asking.answer("talk", talk, "talked")
    assert asking.answers == {"talk": "talked", "/status": "all is well"}


async def test_an_answer_that_is_not_acknowledged_yet_survives_the_acknowledgement_of_a_later_one(asking):
    """The first request has got nothing so far when the answer to the second, with a larger number, is acknowledged."""
    there = asking.there
    first, second = await asking.begin("first"), await asking.begin("second")
    there.journal.post(CHANNEL, "one", item=first)  # the gateway is away, so it is in the journal only
    await asking.answer("second", second, "two")
    await there.journal.finish(first)
    await asking.until_answered("first")
    assert asking.answers == {"first": "one", "second": "two"}


async def test_what_was_said_to_a_client_that_has_left_is_in_no_answer(asking):
    there = asking.there
    left, stays = await asking.begin("left"), await asking.begin("stays")
    await there.say(CHANNEL, "half of it", item=left)
    await asking.leave("left")
    await asking.answer("stays", stays, "for you")
    assert asking.answers == {"stays": "for you"}
    await there.journal.until(lambda: not there.journal.outbox[CHANNEL.address])  # nobody can ask for either any more


async def test_an_answer_that_may_be_asked_for_again_is_kept(asking):
    there = asking.there
    slow = await asking.begin("slow", **{"idempotency-key": "k-1"})
    await there.say(CHANNEL, "at last", item=slow)
    asking._scopes["slow"].cancel()
    other = await asking.begin("other")
    await asking.answer("other", other, "soon")
    await there.journal.finish(slow)
    await asking._ask("slow", "completions", {"idempotency-key": "k-1"})
    assert asking.answers == {"slow": "at last", "other": "soon"}
    await there.journal.until(lambda: not there.journal.outbox[CHANNEL.address])


@pytest.mark.parametrize("kind", ["completions", "stream"])
async def test_what_is_said_unasked_comes_once_before_the_next_answer(asking, kind):
    there = asking.there
    await there.say(CHANNEL, "the first task is done", item=0)
    one = await asking.begin("one", kind)
    two = await asking.begin("two", kind)
    await there.say(CHANNEL, "the second task is done", item=0)
    for text, item in (("one", one), ("two", two)):
        await there.say(CHANNEL, f"to {text}", item=item)
        await there.journal.finish(item)
    await asking.until_answered("one", "two")
    said = "\n\n".join(asking.answers.values())
    assert said.count("the first task is done") == said.count("the second task is done") == 1
    assert asking.answers["one"].startswith("the first task is done")
    assert all(asking.answers[text].endswith(f"to {text}") for text in ("one", "two"))
    assert "to two" not in asking.answers["one"]
    await there.journal.until(lambda: not there.journal.outbox[CHANNEL.address])


async def test_what_is_said_unasked_waits_for_clients_that_can_ask_for_it(asking):
    there = asking.there
    await there.say(CHANNEL, "the task is done", item=0)
    n = await asking.begin("hi", "rest")
    await there.say(CHANNEL, "hello", item=n)
    await there.journal.finish(n)
    await asking.until_answered("hi")
    assert asking.answers == {"hi": "hello"}
    found = (await asking.client.get("/api/replies?channelId=home/c1")).json()["replies"]
    assert [reply["text"] for reply in found] == ["the task is done", "hello"]
    assert there.journal.acks == []
    await asking.client.get("/api/replies?channelId=home/c1&after=2")
    assert there.journal.acks == [(Address("api", "home/c1"), 2)]


async def test_what_somebody_has_said_unasked_to_a_client_that_left_comes_again(asking):
    there = asking.there
    await there.say(CHANNEL, "the task is done", item=0)
    await asking.begin("left")
    await asking.leave("left")
    n = await asking.begin("stays")
    await there.say(CHANNEL, "hello", item=n)
    await there.journal.finish(n)
    await asking.until_answered("stays")
    assert asking.answers == {"stays": "the task is done\n\nhello"}


async def test_an_answer_to_a_message_that_nobody_waits_for_is_in_no_other(asking):
    there = asking.there
    sent = {"text": "for later", "id": "m-1", "channel": {"channelId": "home/c1"}}
    assert (await asking.client.post("/api/messages", json=sent)).status_code == 202
    n = await asking.begin("now")
    await there.say(CHANNEL, "later", item=1)
    await there.say(CHANNEL, "at once", item=n)
    await there.journal.finish(n)
    await asking.until_answered("now")
    assert asking.answers == {"now": "at once"}
    found = (await asking.client.get("/api/replies?channelId=home/c1")).json()["replies"]
    assert [reply["text"] for reply in found] == ["later", "at once"]


async def test_answers_that_nobody_fetches_keep_nothing_from_the_next_answer(asking):
    there = asking.there
    sent = {"text": "for later", "id": "m-1", "channel": {"channelId": "home/c1"}}
    assert (await asking.client.post("/api/messages", json=sent)).status_code == 202
    for n in range(300):
        there.journal.post(CHANNEL, f"{n}", item=1)
    there.journal.post(CHANNEL, "the task is done", item=0)
    for text in ("one", "two"):
        n = await asking.begin(text)
        await there.say(CHANNEL, f"to {text}", item=n)
        await there.journal.finish(n)
        await asking.until_answered(text)
    assert asking.answers == {"one": "the task is done\n\nto one", "two": "to two"}
    assert there.journal.acks == []


async def test_a_message_that_a_request_waits_for_has_a_turn_of_its_own(asking):
    await asking.begin("hi")
    await asking.begin("hi again", "rest")
    await asking.client.post("/api/messages", json={"text": "for later"})
    flags = [message.metadata.get("ownTurn") for message, _ in asking.there.journal.accepted]
    assert flags == [True, True, None]
