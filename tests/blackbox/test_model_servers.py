"""Model servers as people run them: refusals that nobody understands, answers without anything, texts in an unusual order."""

from __future__ import annotations

import pytest

from pegasus.models import Usage
from pegasus.testing.provider.answers import ProviderAnswer
from tests.blackbox.support import Book, Call, Thought, refuse, say, serving, session
from tests.blackbox.support.work import Office, act, answer, heard, kind_of

LONG = "It is a long story 📖, and it is told word by word,\nso that one can read along while it is being told."
ROOM = 6_000
"""Characters of a conversation that the server takes, beyond its first message."""


def progress(client):
    return [frame["text"] for frame in client.seen if frame["type"] == "progress" and frame["text"]]


def size(view):
    return sum(len(turn.text) for turn in view.request.turns)


# ------------------------------------------------------------------ too long, without words

WORDLESS = [
    pytest.param(
        400,
        "输入内容过长，请缩短后重试",
        marks=pytest.mark.tried("models", "too long, in Chinese (400)", "shortened once, answered"),
    ),
    pytest.param(
        422,
        "unprocessable",
        marks=pytest.mark.tried("models", "too long, without a reason (422)", "shortened once, answered"),
    ),
    pytest.param(
        400, "code 9117", marks=pytest.mark.tried("models", "too long, as a number (400)", "shortened once, answered")
    ),
    pytest.param(
        400,
        "Range of input length should be [1, 129024]",
        marks=pytest.mark.tried("models", "too long, in DashScope's words", "shortened, answered"),
    ),
]


def limited(status, words):
    """A server that takes so much and no more, whoever asks; a summary is short."""

    def answer(view):
        if size(view) > ROOM:
            return refuse(status, words)
        return say(f"ok {view.question.text[:6].strip()}") if not view.replied else Thought("done")

    return answer


class SummaryBook(Book):
    """A book that also writes summaries, which are asked for without a message of a person."""

    async def __call__(self, request):
        if not request.tools:
            return Thought("## Goal\nWe count.\n\n## State\nCounting goes on.")
        return await super().__call__(request)


@pytest.mark.parametrize(("status", "words"), WORDLESS)
async def test_a_refusal_without_known_words_shortens_the_conversation_once(tmp_path, status, words):
    book = SummaryBook(otherwise=limited(status, words))
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        for n in range(8):
            told = await client.ask(f"say {n} " + "word " * 300)
            assert told.startswith("ok"), (n, told, [(size(view), len(view.request.tools)) for view in book.asked])
        entries = session(daemon.home)
    assert entries[0]["metadata"]["type"] == "compact"


@pytest.mark.tried("models", "too long in a task, without a reason (400)", "shortened once, goes on")
async def test_a_task_goes_on_with_a_shorter_conversation_too(tmp_path):
    refused = []

    class Narrow(Office):
        """A server that takes so much of a task's conversation and no more."""

        async def __call__(self, request):
            if kind_of(request) == "task" and sum(len(str(turn)) for turn in request.turns) > 20_000:
                refused.append(request)
                return refuse(400, "code 9117")
            return await super().__call__(request)

    read = Call("read_file", {"path": "long.txt"})
    book = Narrow({"dig": [act(read), act(Call("current_time")), lambda view: answer("found")]})
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        (daemon.home / "workspace" / "long.txt").write_text("word word word\n" * 2_000)
        await client.say("do dig")
        (told,) = await heard(client)
    assert "found" in told
    assert len(refused) == 1


@pytest.mark.tried("models", "refused id of a call: “string too long”", "told, nothing shortened")
async def test_a_refused_id_of_a_call_is_told_and_shortens_nothing(tmp_path):
    words = "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40."
    pages = {f"say {n}": say(f"ok {n}") for n in range(4)}
    async with (
        serving(tmp_path, SummaryBook({**pages, "now": refuse(400, words)})) as daemon,
        daemon.client() as client,
    ):
        for n in range(4):
            await client.ask(f"say {n}")
        told = await client.ask("now")
        entries = session(daemon.home)
    assert "string too long" in told
    assert "/new" not in told or "conversation has become too long" not in told
    assert not any((entry.get("metadata") or {}).get("type") == "compact" for entry in entries)


# ------------------------------------------------------------------ nothing at all

EMPTY = ProviderAnswer("", usage=Usage(100, 0))


@pytest.mark.tried("models", "answer without text, call or thought", "asked for once more, then silence")
async def test_an_empty_answer_of_a_trusted_model_is_asked_for_once_more(tmp_path):
    left = [EMPTY]

    def hiccup(view):
        return left.pop() if left else say("here I am")

    book = Book({"well?": hiccup, "nothing": EMPTY})
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        assert await client.ask("hello") == "echo: hello"
        assert await client.ask("well?") == "here I am"
        await client.say("nothing")
        assert await client.ask("next") == "echo: next"
    assert len(book.about("nothing")) == 2, "once more, and then it is silence"


# ------------------------------------------------------------------ seen while it is written


@pytest.mark.tried("models", "`text` before `channelId` in a call of reply", "streams")
async def test_a_reply_streams_whatever_the_order_of_its_arguments(tmp_path):
    call = Call("reply", {"text": LONG, "channelType": "web", "channelId": "c1"})
    book = Book({"tell": [Thought(calls=(call,), pieces=20, pause=0.04)]})
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        assert await client.ask("tell") == LONG
        assert len(progress(client)) >= 2
        assert all(LONG.startswith(draft) for draft in progress(client))


@pytest.mark.tried("models", "first answer of a model is text without a call", "streams, delivered")
async def test_the_first_text_of_an_unproven_model_is_seen_while_it_is_written(tmp_path):
    book = Book({"tell": Thought(LONG, pieces=20, pause=0.05)})
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        assert await client.ask("tell") == LONG
        assert len(progress(client)) >= 2
        assert all(LONG.startswith(draft) for draft in progress(client))


# ------------------------------------------------------------------ markup

WRITTEN = {
    "Kimi": '<|tool_calls_section_begin|><|tool_call_begin|>functions.reply:0<|tool_call_argument_begin|>{"channelId": "c1", '
    '"text": "hi"}<|tool_call_end|><|tool_calls_section_end|>',
    "MiniMax": '<minimax:tool_call>\n<invoke name="reply">\n<parameter name="channelId">c1</parameter>\n'
    '<parameter name="text">hi</parameter>\n</invoke>\n</minimax:tool_call>',
    "DeepSeek 3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="reply">\n<｜DSML｜parameter name="text" string="true">hi'
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
}


@pytest.mark.parametrize("family", WRITTEN)
async def test_a_call_that_a_server_leaves_in_the_text_is_a_reply(tmp_path, family):
    async with (
        serving(tmp_path, Book({"hello": [Thought(WRITTEN[family], pieces=9)]})) as daemon,
        daemon.client() as client,
    ):
        assert await client.ask("hello") == "hi"
        assert all("<" not in text for text in (*client.texts(), *progress(client)))


@pytest.mark.parametrize("speech", ["auto", "direct"])
async def test_markup_of_an_unknown_family_is_never_read_by_a_person(tmp_path, speech):
    markup = "<omega:tool_call>\nreply ~ channelId=c1 ~ text=hi\n</omega:tool_call>"
    async with (
        serving(tmp_path, Book({"hello": Thought(markup, pieces=9)}), {"agent.speech": speech}) as daemon,
        daemon.client() as client,
    ):
        await client.say("hello")
        assert await client.ask("next") == "echo: next" or speech == "auto"
        assert all("omega" not in text for text in (*client.texts(), *progress(client)))


# ------------------------------------------------------------------ the doctor


class PatientBook(Book):
    """A book that answers the doctor, who is no person with a chat."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer
        self.calls = 0

    async def __call__(self, request):
        self.calls += 1
        return self.answer


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (Thought("ok"), 0, "test/model-1 answers"),
        (refuse(404, "The model `model-1` does not exist"), 1, "the provider has no model model-1"),
        (refuse(401, "no such key"), 1, "the provider refused the key"),
    ],
)
async def test_the_doctor_asks_the_model_before_it_says_that_it_answers(tmp_path, answer, code, words):
    book = PatientBook(answer)
    async with serving(tmp_path, book) as daemon:
        told = await daemon.command("doctor")
        assert book.calls == 1
        assert words in told.out
        assert ("broken  keys" in told.out) is bool(code), told.out
