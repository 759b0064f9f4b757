import json

from hypothesis import given
from hypothesis import strategies as st

from pegasus.conversation.entry import Entry, decode, repair_log
from pegasus.conversation.projection import Projection
from pegasus.main_agent.replies import REPLY
from pegasus.models.base import AssistantTurn, ModelRequest, ToolCall, UserTurn
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.chat import ChatWire
from pegasus.testing.provider.formats import parse
from tests.pegasus.conversation.logs import as_bytes, logs


def is_valid(turns):
    """The rules of ModelRequest.turns, checked without the code under test."""
    for i, turn in enumerate(turns):
        assert isinstance(turn, UserTurn if i % 2 == 0 else AssistantTurn)
        if isinstance(turn, AssistantTurn):
            assert turn.text.strip() or turn.calls
            following = turns[i + 1] if i + 1 < len(turns) else UserTurn()
            if turn.calls:
                assert [c.id for c in turn.calls] == [r.call_id for r in following.results]
        else:
            assert turn.text.strip() or turn.results
            assert all(r.content for r in turn.results)
            before = turns[i - 1].calls if i else ()
            assert [r.call_id for r in turn.results] == [c.id for c in before]
    return True


def test_neighbouring_messages_of_one_role_are_merged():
    turns = Projection([Entry(0, "user", "a"), Entry(0, "user", "b")]).turns
    assert [t.text for t in turns] == ["a\n\nb"]


def test_silence_leaves_no_empty_message():
    turns = Projection([Entry(0, "user", "a"), Entry(0, "assistant"), Entry(0, "user", "b")]).turns
    assert is_valid(turns)
    assert [t.text for t in turns] == ["a\n\nb"]


def test_results_come_before_the_text_of_the_next_message():
    entries = [
        Entry(0, "user", "a"),
        Entry(0, "assistant", "", (ToolCall("c", "reply", {}),)),
        Entry(0, "tool", "done", call_id="c"),
        Entry(0, "user", "b"),
    ]
    turns = Projection(entries).turns
    assert is_valid(turns)
    assert (turns[2].results[0].content, turns[2].text) == ("done", "b")


def test_a_session_that_begins_with_the_agent_still_begins_with_a_user_turn():
    assert is_valid(Projection([Entry(0, "assistant", "hello")]).turns)


def test_an_empty_result_is_not_sent_empty():
    entries = [
        Entry(0, "user", "a"),
        Entry(0, "assistant", "", (ToolCall("c", "current_time", {}),)),
        Entry(0, "tool", "", call_id="c"),
    ]
    assert Projection(entries).turns[2].results[0].content


def test_thinking_blocks_are_carried_back_unchanged():
    block = {"type": "thinking", "thinking": "…", "signature": "s"}
    entry = Entry(0, "assistant", "x", metadata={"thinking": [block], "thinkingOf": "anthropic"})
    turn = Projection([Entry(0, "user", "a"), entry]).turns[1]
    assert (turn.thinking, turn.thinking_of) == ((block,), "anthropic")


@given(logs(), st.data())
def test_any_byte_prefix_of_a_session_file_projects_to_valid_turns(entries, data):
    """Whatever moment the process died at, the next call to a model is well-formed."""
    content = as_bytes(entries)
    cut = content[: data.draw(st.integers(0, len(content)))]
    whole_lines = cut[: cut.rfind(b"\n") + 1].splitlines()
    loaded = [decode(json.loads(line)) for line in whole_lines]
    repaired = repair_log(loaded, lambda made: None, 9).entries
    assert is_valid(Projection(repaired).turns)


@given(logs())
def test_turns_that_did_not_change_stay_the_same_objects(entries):
    """What makes each message serialised once: only the last turn may be replaced by a merged one."""
    projection = Projection()
    for entry in repair_log(entries, lambda made: None, 9).entries:
        before = list(projection.turns)
        projection.append(entry)
        assert all(a is b for a, b in zip(before[:-1], projection.turns, strict=False))


JSON_BODY = {"content-type": "application/json"}


@given(logs(), st.data())
def test_any_byte_prefix_gives_requests_that_both_providers_accept(entries, data):
    """The same for the bytes on the wire, read by a server as strict as the real ones."""
    content = as_bytes(entries)
    cut = content[: data.draw(st.integers(0, len(content)))]
    loaded = [decode(json.loads(line)) for line in cut[: cut.rfind(b"\n") + 1].splitlines()]
    projection = Projection(repair_log(loaded, lambda made: None, 9).entries)
    projection.append(Entry(0, "user", "the next message"))
    request = ModelRequest("system", tuple(projection.turns), (REPLY,))
    messages = parse("/v1/messages", JSON_BODY, AnthropicWire("claude-x").body(request))
    chat = parse("/v1/chat/completions", JSON_BODY, ChatWire("gpt-x", is_own=True).body(request))
    for seen in (messages, chat):
        assert [type(turn) for turn in seen.turns] == [type(turn) for turn in request.turns]
        assert seen.last.text.endswith("the next message")
