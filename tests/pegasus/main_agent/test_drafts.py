"""Drafts: reading the arguments of a reply before they are complete, and what of it is shown where."""

import json

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.main_agent.drafts import (
    DRAFT_EVERY,
    LONGEST_DRAFT,
    LONGEST_REASONING,
    LOOK_EVERY,
    DraftBoard,
    DraftWriter,
    PartialReply,
    draft_channel,
    parse_partial_reply,
)
from pegasus.messages import Address, ChannelInfo, ReplyDraft
from pegasus.models import AnotherAttempt, CallBegun, CallPiece, ReasoningPiece, TextPiece

CLI = ChannelInfo("cli", "main")
SLACK = ChannelInfo("slack", "#a|b", "U1", "thread|1")
KNOWN = (Address("cli", "main"), Address("slack", "#a|b"), Address("web", "c1"))

# ------------------------------------------------------------------ reading

texts = st.text(st.characters(codec="utf-8"), max_size=30)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "channelId": texts.filter(bool),
        "channelType": texts.filter(bool),
        "replyTo": texts.filter(bool) | st.none(),
        "other": st.recursive(st.integers() | texts | st.booleans(), lambda inner: st.lists(inner, max_size=3)),
    },
)


@given(arguments.flatmap(lambda given: st.permutations(list(given.items()))), st.booleans(), st.data())
@settings(deadline=None)
def test_each_beginning_of_the_arguments_gives_a_beginning_of_the_text(fields, is_ascii, data):
    given = dict(fields)
    whole = json.dumps(given, ensure_ascii=is_ascii, indent=data.draw(st.none() | st.just(1)))
    seen = ""
    for end in range(len(whole)):
        part = parse_partial_reply(whole[:end])
        if part is None:
            continue
        assert given.get("text", "").startswith(part.text)
        assert part.text.startswith(seen), "a draft never takes back what it has shown"
        seen = part.text
        assert not part.is_whole
        assert part.channel_id in (None, given.get("channelId"))
        assert part.channel_type in (None, given.get("channelType"))
        assert part.reply_to in (None, given.get("replyTo"))
    part = parse_partial_reply(whole)
    assert part == PartialReply(
        given.get("text", ""), given.get("channelId"), given.get("channelType"), given.get("replyTo"), is_whole=True
    )


@pytest.mark.parametrize(
    "cut", ["\\", "\\u", "\\ud8", "\\ud83d", "\\ud83d\\", "\\ud83d\\ude0"], ids=lambda cut: cut.replace("\\", "/")
)
def test_half_an_escape_is_left_out(cut):
    assert parse_partial_reply('{"text":"a' + cut) == PartialReply("a")


@pytest.mark.parametrize("broken", ["", "no", "[1", '"text', "{,", '{"text": nil', "7", "null"])
def test_what_is_no_object_is_not_read(broken):
    assert parse_partial_reply(broken) is None


def test_an_id_that_may_go_on_is_not_known():
    assert parse_partial_reply('{"text":"hi","channelId":"ma').channel_id is None
    assert parse_partial_reply('{"text":"hi","channelId":"main"').channel_id is None
    assert parse_partial_reply('{"text":"hi","channelId":"main"}').channel_id == "main"
    assert parse_partial_reply('{"channelId":"main","text":"').channel_id == "main"


def test_values_of_other_kinds_are_unknown():
    assert parse_partial_reply('{"text":["a"],"channelId":5,"channelType":null}') == PartialReply(is_whole=True)


# ------------------------------------------------------------------ where it is shown


def place(source, known=KNOWN, **fields):
    return draft_channel(PartialReply("hi", **fields), source, known)


def test_a_reply_to_the_source_is_shown_there_once_its_id_is_known():
    assert place(CLI) is None
    assert place(CLI, channel_id="main") == CLI
    assert place(CLI, channel_id="main", channel_type="cli") == CLI


def test_a_reply_without_an_id_is_for_the_source_once_it_is_complete():
    assert place(CLI, is_whole=True) == CLI


def test_a_reply_without_an_id_is_for_the_thread_of_the_source_and_for_no_other_type():
    assert place(SLACK, is_whole=True) == SLACK
    assert place(SLACK, is_whole=True, channel_type="web") is None


def test_the_source_is_recognised_by_its_escaped_id_and_thread():
    shown = place(SLACK, channel_id="#a%7Cb", channel_type="slack", reply_to="thread%7C1")
    assert shown == SLACK
    assert place(SLACK, channel_id="#a|b") == ChannelInfo("slack", "#a|b", "U1"), "a reply without a thread opens none"


def test_a_reply_to_another_known_conversation_is_shown_there_if_its_type_is_given():
    assert place(CLI, channel_id="c1", channel_type="web") == ChannelInfo("web", "c1")
    assert place(CLI, channel_id="c1") is None, "a type may follow the text"
    assert place(CLI, channel_id="c1", is_whole=True) is None


@pytest.mark.parametrize("given", [("c2", "web"), ("main", "irc"), ("MAIN", None), ("main", "web")])
def test_a_reply_to_anything_else_is_shown_to_nobody(given):
    channel_id, channel_type = given
    assert place(CLI, channel_id=channel_id, channel_type=channel_type, is_whole=True) is None


# ------------------------------------------------------------------ when it is shown


class Stage:
    """A writer at work, and what it has shown: pairs of time and draft."""

    def __init__(self, source=CLI, **rules):
        self.shown = []
        self.asked = 0
        self.board = DraftBoard(lambda draft: self.shown.append((trio.current_time(), draft)))
        self.source, self.rules = source, rules
        self.start = trio.current_time()

    async def known(self):
        self.asked += 1
        return KNOWN

    async def play(self, *pieces, pause=0.0):
        """Send the pieces with pauses, then wait until everything is shown."""
        async with trio.open_nursery() as nursery:
            write = DraftWriter(self.board, self.known, nursery, self.source, **self.rules)
            for piece in pieces:
                write([piece])
                await trio.sleep(pause)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        return self.texts

    @property
    def texts(self):
        return [draft.text for _, draft in self.shown]

    @property
    def times(self):
        return [round(time - self.start, 3) for time, _ in self.shown]


def reply_pieces(number=0, size=1, **fields):
    """A call of `reply` in pieces of so many characters."""
    whole = json.dumps(fields)
    return [CallBegun(number, "reply"), *(CallPiece(number, whole[i : i + size]) for i in range(0, len(whole), size))]


async def test_the_first_text_is_shown_at_once_and_then_four_times_a_second(autojump_clock):
    stage = Stage()
    await stage.play(*reply_pieces(channelId="main", text="x" * 100), pause=0.01)
    known_at = 0.01 * len('{"channelId": "main", "text": "')
    assert known_at <= stage.times[0] <= known_at + LOOK_EVERY + 0.011
    gaps = [later - earlier for earlier, later in zip(stage.times, stage.times[1:], strict=False)]
    assert min(gaps) >= DRAFT_EVERY - 0.001
    assert stage.texts[-1] == "x" * 100
    assert stage.texts == sorted(stage.texts, key=len)


async def test_nothing_is_done_for_an_answer_that_is_complete_at_once(autojump_clock):
    stage = Stage()
    async with trio.open_nursery() as nursery:
        write = DraftWriter(stage.board, stage.known, nursery, stage.source, **stage.rules)
        for piece in reply_pieces(size=40, text="Hello", channelId="c1", channelType="web"):
            write([piece])
            await trio.sleep(LOOK_EVERY / 10)
        nursery.cancel_scope.cancel()
    assert (stage.shown, stage.asked) == ([], 0)


async def test_nothing_is_shown_elsewhere_while_the_policy_is_to_be_asked(autojump_clock):
    """Whoever reads a draft has read the text, whatever is decided about the reply afterwards."""
    stage = Stage(may_leave=lambda channel: False)
    await stage.play(*reply_pieces(channelId="c1", channelType="web", text="the secret"))
    assert stage.texts == []
    await stage.play(*reply_pieces(1, channelId="main", text="an answer"))
    assert stage.texts[-1] == "an answer"


async def test_the_last_pieces_are_shown_even_if_the_model_pauses_behind_them(autojump_clock):
    stage = Stage()
    await stage.play(CallBegun(0, "reply"), CallPiece(0, '{"channelId":"main","text":"a'), CallPiece(0, "b"))
    assert stage.texts[-1] == "ab"


async def test_pieces_of_parallel_calls_may_alternate(autojump_clock):
    stage = Stage()
    ours, theirs = reply_pieces(0, channelId="main", text="ours"), reply_pieces(1, channelId="main", text="theirs")
    await stage.play(*(piece for pair in zip(ours, theirs, strict=False) for piece in pair), *theirs[len(ours) :])
    assert stage.texts[-1] == "ours\n\ntheirs"


async def test_several_replies_to_one_conversation_are_one_draft(autojump_clock):
    stage = Stage()
    first, second = reply_pieces(0, channelId="main", text="one"), reply_pieces(1, channelId="main", text="two")
    await stage.play(*first, *second, pause=0.1)
    assert stage.texts[-1] == "one\n\ntwo"
    assert stage.texts == sorted(stage.texts, key=len)


async def test_other_conversations_get_their_own_draft(autojump_clock):
    stage = Stage()
    await stage.play(
        *reply_pieces(0, channelId="main", text="for you"),
        *reply_pieces(1, channelType="web", channelId="c1", text="for web"),
        *reply_pieces(2, channelType="web", channelId="stranger", text="for nobody"),
    )
    assert {(draft.channel, draft.text) for _, draft in stage.shown} >= {
        (CLI, "for you"),
        (ChannelInfo("web", "c1"), "for web"),
    }
    assert "for nobody" not in stage.texts
    assert stage.asked == 1


async def test_the_known_conversations_are_not_asked_for_in_vain(autojump_clock):
    stage = Stage()
    await stage.play(*reply_pieces(channelId="main", channelType="cli", text="hi"))
    assert stage.asked == 0


async def test_a_reply_that_turns_out_to_be_for_somebody_else_is_withdrawn(autojump_clock):
    stage = Stage()
    await stage.play(*reply_pieces(channelId="main", text="psst", channelType="irc"), pause=0.1)
    assert stage.texts[-1] == ""
    assert all(draft.channel == CLI for _, draft in stage.shown)


async def test_other_tools_and_the_monologue_are_not_shown(autojump_clock):
    stage = Stage()
    call = [CallBegun(0, "shell_exec"), CallPiece(0, '{"channelId":"main","text":"rm"}')]
    assert await stage.play(TextPiece("private"), ReasoningPiece("secret"), *call) == []


async def test_only_as_many_replies_are_shown_as_may_be_given(autojump_clock):
    stage = Stage(max_replies=1)
    first, second = reply_pieces(0, channelId="main", text="one"), reply_pieces(1, channelId="main", text="two")
    await stage.play(*first, *second)
    assert stage.texts[-1] == "one"
    assert await Stage(max_replies=0).play(*first) == []


async def test_blank_text_is_not_shown(autojump_clock):
    assert await Stage().play(*reply_pieces(channelId="main", text=" \n ")) == []


async def test_arguments_that_cannot_be_read_keep_the_draft(autojump_clock):
    stage = Stage()
    await stage.play(
        CallBegun(0, "reply"), CallPiece(0, '{"channelId":"main","text":"a'), CallPiece(0, "b\nc"), pause=1
    )
    assert stage.texts == ["a"]


async def test_another_attempt_continues_the_draft_if_it_begins_soon(autojump_clock):
    stage = Stage()
    wrong, right = (reply_pieces(size=99, channelId="main", text=text) for text in ("wrong", "right"))
    await stage.play(*wrong, None, *right, pause=0.03)
    assert stage.texts == ["wrong", "right"]


async def test_a_void_answer_is_withdrawn(autojump_clock):
    stage = Stage()
    await stage.play(CallBegun(0, "reply"), CallPiece(0, '{"channelId":"main","text":"wrong'), None, None, pause=1)
    assert stage.texts == ["wrong", ""]


async def test_a_long_draft_is_cut_and_costs_few_looks(autojump_clock):
    stage = Stage()
    await stage.play(*reply_pieces(size=1000, channelId="main", text="é" * 100_000), pause=0.01)
    assert len(stage.texts[-1]) == LONGEST_DRAFT


async def test_direct_speech_is_shown_without_blanks_around_it(autojump_clock):
    stage = Stage(source=SLACK, is_direct=True)
    await stage.play(TextPiece("\nOnce "), TextPiece("upon "), pause=1)
    assert stage.texts == ["Once", "Once upon"]
    assert {draft.channel for _, draft in stage.shown} == {SLACK}


@pytest.mark.parametrize("text", ["(silence)", " (silence)\n", "`(silence)`", "**(silence)**.", "(sil", "", "  "])
async def test_silence_is_not_shown(autojump_clock, text):
    assert await Stage(is_direct=True).play(*map(TextPiece, text), pause=0.3) == []


async def test_text_beside_a_call_is_withdrawn(autojump_clock):
    stage = Stage(is_direct=True)
    await stage.play(TextPiece("Let me look."), CallBegun(0, "current_time"), pause=1)
    assert stage.texts == ["Let me look.", ""]


async def test_reasoning_is_shown_beside_the_draft_where_the_owner_wants_it(autojump_clock):
    stage = Stage(shows_reasoning=True)
    reply = reply_pieces(size=1000, channelId="main", text="hi")
    await stage.play(ReasoningPiece("Hm"), ReasoningPiece("m"), *reply, None, pause=1)
    assert [(draft.text, draft.reasoning) for _, draft in stage.shown] == [
        ("", "Hm"),
        ("", "Hmm"),
        ("hi", "Hmm"),
        ("", ""),
    ]


async def test_reasoning_stands_beside_a_draft_in_another_thread_of_the_conversation(autojump_clock):
    stage = Stage(source=SLACK, shows_reasoning=True)
    await stage.play(ReasoningPiece("Hm"), *reply_pieces(size=1000, channelId="#a|b", text="hi"), pause=1)
    plain = ChannelInfo("slack", "#a|b", "U1")
    assert [draft for _, draft in stage.shown] == [
        ReplyDraft(SLACK, "", "Hm"),
        ReplyDraft(SLACK, ""),
        ReplyDraft(plain, "hi", "Hm"),
    ]


async def test_the_newest_reasoning_is_shown(autojump_clock):
    stage = Stage(shows_reasoning=True)
    await stage.play(*(ReasoningPiece(f"{number:09} ") for number in range(1000)))
    reasoning = stage.shown[-1][1].reasoning
    assert reasoning.endswith("000000999 ")
    assert len(reasoning) == LONGEST_REASONING


# ------------------------------------------------------------------ withdrawing


def test_the_board_withdraws_what_no_reply_follows():
    shown = []
    board = DraftBoard(shown.append)
    web = ChannelInfo("web", "c1")
    board.put({CLI: ReplyDraft(CLI, "a"), web: ReplyDraft(web, "b")})
    del shown[:]
    board.settle({CLI.address})
    assert shown == [ReplyDraft(web, "")]
    board.withdraw()
    assert shown == [ReplyDraft(web, "")], "nothing is withdrawn twice"


def test_a_draft_that_moves_to_another_thread_is_withdrawn_before_it_is_shown():
    shown = []
    board = DraftBoard(shown.append)
    thread = ChannelInfo("slack", "#a", None, "t1")
    plain = ChannelInfo("slack", "#a")
    board.put({plain: ReplyDraft(plain, "a")})
    board.put({thread: ReplyDraft(thread, "ab")})
    assert shown == [ReplyDraft(plain, "a"), ReplyDraft(plain, ""), ReplyDraft(thread, "ab")]


async def test_what_delays_an_answer_is_told_where_it_is_awaited(autojump_clock):
    """It ends when the server answers, and when another model is asked; hidden reasoning may come before any text."""
    for end in (AnotherAttempt(""), None):
        stage = Stage()
        await stage.play(TextPiece("begun"), None, AnotherAttempt("retrying (429), attempt 2"), end, pause=0.5)
        assert [draft.activity for _, draft in stage.shown] == ["retrying (429), attempt 2", ""]
        assert stage.shown[-1][1].is_withdrawal
