"""Calls and reasoning that a model writes as text: found in every family's format, and nothing else is taken for one."""

import html
import json
import time

import pytest

from pegasus.models import (
    AssistantTurn,
    ModelRequest,
    ModelResponse,
    ReasoningPiece,
    TextPiece,
    ToolCall,
    ToolSpec,
    Usage,
    UserTurn,
)
from pegasus.models.answers.streaming import AnswerFilter, PieceRelay, read_answer, split_reasoning, visible_text
from pegasus.models.answers.text_calls import find_calls, remove_calls
from pegasus.models.json_text import CUT_CALL, parse_arguments, parse_object

REPLY = ToolSpec(
    "reply",
    "Speak.",
    {
        "type": "object",
        "properties": {"channelId": {"type": "string"}, "text": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["channelId", "text"],
    },
)
CLOCK = ToolSpec("current_time", "The clock.", {"type": "object", "properties": {"timezone": {"type": "string"}}})
TOOLS = (REPLY, CLOCK)
JSON = '{"name": "reply", "arguments": {"text": "Hi"}}'
HI = ("reply", {"text": "Hi"})
NOW = ("current_time", {})

FORMATS = {
    "cline": ("<reply>\n<text>Hi</text>\n</reply>", [HI]),
    "cline, without arguments": ("<current_time></current_time>", [NOW]),
    "step": (
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="reply"><steptml:parameter name="text">Hi</steptml:parameter></steptml:invoke>'
        "<｜tool_call_end｜><｜tool_calls_end｜>",
        [HI],
    ),
    "bare, as Gemini has it": ('{"functionCall": {"name": "reply", "args": {"text": "Hi"}}}', [HI]),
    "hermes": (f"<tool_call>\n{JSON}\n</tool_call>", [HI]),
    "hermes, unclosed": (f"<tool_call>{JSON}", [HI]),
    "hermes, two run together": (f"<tool_call>{JSON}</tool_call><tool_call>{JSON}</tool_call>", [HI, HI]),
    "hermes, two without closing tags": (f"<tool_call>{JSON}<tool_call>{JSON}", [HI, HI]),
    "hermes, two in one tag": (f"<tool_call>{JSON}{JSON}</tool_call>", [HI, HI]),
    "hermes, a brace is missing": (f"<tool_call>{JSON[:-1]}</tool_call>", [HI]),
    "bare": (JSON, [HI]),
    "bare, two run together": (JSON + JSON, [HI, HI]),
    "bare, two lines": (f"{JSON}\n{JSON}", [HI, HI]),
    "bare, behind words": (f"Sure! {JSON}", [HI]),
    "bare, a list": (f"[{JSON}, {JSON}]", [HI, HI]),
    "bare, flat": ('{"name": "reply", "text": "Hi"}', [HI]),
    "bare, the tool as key": ('{"reply": {"text": "Hi"}}', [HI]),
    "bare, tool and parameters": ('{"tool": "reply", "parameters": {"text": "Hi"}}', [HI]),
    "bare, as OpenAI has it": (
        '{"tool_calls": [{"type": "function", "function": {"name": "reply", "arguments": "{\\"text\\": \\"Hi\\"}"}}]}',
        [HI],
    ),
    "fenced": (f"```json\n{JSON}\n```", [HI]),
    "fenced, no language": (f"```\n{JSON}\n```", [HI]),
    "llama": ('<function=reply>{"text": "Hi"}</function>', [HI]),
    "llama, python tag": ('<|python_tag|>{"name": "reply", "parameters": {"text": "Hi"}}<|eom_id|>', [HI]),
    "llama, pythonic": ('[reply(text="Hi"), current_time()]', [HI, NOW]),
    "llama, python tag, code": ('<|python_tag|>reply.call(text="Hi")<|eom_id|>', [HI]),
    "mistral": (f"[TOOL_CALLS][{JSON}]", [HI]),
    "mistral, newer": ('[TOOL_CALLS]reply[ARGS]{"text": "Hi"}[TOOL_CALLS]current_time[ARGS]{}', [HI, NOW]),
    "phi": (f"functools[{JSON}]", [HI]),
    "phi 4": (f"<|tool_call|>[{JSON}]<|/tool_call|>", [HI]),
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>reply\n```json\n"
        '{"text": "Hi"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [HI],
    ),
    "deepseek 3.1": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>reply<｜tool▁sep｜>{"text": "Hi"}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>current_time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [HI, NOW],
    ),
    "gemma": ('```tool_code\nreply(text="Hi")\n```', [HI]),
    "gemma, printed": ('```tool_code\nprint(reply(text="Hi"))\n```', [HI]),
    "qwen3 coder": (
        "<tool_call>\n<function=reply>\n<parameter=text>\nHi\n</parameter>\n<parameter=times>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        [("reply", {"text": "Hi", "times": 3})],
    ),
    "glm": ("<tool_call>reply\n<arg_key>text</arg_key>\n<arg_value>Hi</arg_value>\n</tool_call>", [HI]),
    "glm, no arguments": ("<tool_call>current_time\n</tool_call>", [NOW]),
    "gpt-oss": (
        '<|channel|>commentary to=functions.reply <|constrain|>json<|message|>{"text": "Hi"}<|call|>',
        [HI],
    ),
    "gpt-oss, recipient first": (
        '<|start|>assistant to=functions.reply<|channel|>commentary json<|message|>{"text": "Hi"}<|call|>',
        [HI],
    ),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.reply:0<|tool_call_argument_begin|>"
        '{"text": "Hi"}<|tool_call_end|><|tool_call_begin|>functions.current_time:1<|tool_call_argument_begin|>{}'
        "<|tool_call_end|><|tool_calls_section_end|>",
        [HI, NOW],
    ),
    "kimi, no section": (
        '<|tool_call_begin|>functions.reply:0<|tool_call_argument_begin|>{"text": "Hi"}<|tool_call_end|>',
        [HI],
    ),
    "minimax": (
        '<minimax:tool_call>\n<invoke name="reply">\n<parameter name="text">Hi</parameter>\n<parameter name="times">3</parameter>\n'
        '</invoke>\n<invoke name="current_time">\n</invoke>\n</minimax:tool_call>',
        [("reply", {"text": "Hi", "times": 3}), NOW],
    ),
    "minimax, older": (f"[TOOL_CALL]\n{JSON}\n[/TOOL_CALL]", [HI]),
    "deepseek 3.2": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="reply">\n'
        '<｜DSML｜parameter name="text" string="true">Hi</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="times" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [("reply", {"text": "Hi", "times": 3})],
    ),
    "deepseek 3.2, an object": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="reply">\n{"text": "Hi"}\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [HI],
    ),
    "deepseek 4": (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="reply">\n<｜DSML｜parameter name="text" string="true">Hi</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        [HI],
    ),
    "claude, as text": (
        '<function_calls>\n<invoke name="reply">\n<parameter name="text">Hi</parameter>\n</invoke>\n</function_calls>',
        [HI],
    ),
    "claude, no wrapper": ('<invoke name="reply">\n<parameter name="text">Hi</parameter>\n</invoke>', [HI]),
    "seed": (
        "<seed:tool_call>\n<function=reply>\n<parameter=text>Hi</parameter>\n</function>\n</seed:tool_call>",
        [HI],
    ),
    "doubao": ('<|FunctionCallBegin|>[{"name": "reply", "parameters": {"text": "Hi"}}]<|FunctionCallEnd|>', [HI]),
    "longcat": (
        "<longcat_tool_call>reply\n<longcat_arg_key>text</longcat_arg_key>\n<longcat_arg_value>Hi</longcat_arg_value>\n"
        "</longcat_tool_call>",
        [HI],
    ),
    "hunyuan": ('<tool_calls><tool_call>reply\n```json\n{"text": "Hi"}\n```</tool_call></tool_calls>', [HI]),
    "command r": (
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "reply", "parameters": {"text": "Hi"}}]<|END_ACTION|>',
        [HI],
    ),
    "internlm": (
        '<|action_start|><|plugin|>\n{"name": "reply", "parameters": {"text": "Hi"}}<|action_end|>',
        [HI],
    ),
    "lfm2": ('<|tool_call_start|>[reply(text="Hi"), current_time()]<|tool_call_end|>', [HI, NOW]),
    "llama 4": ('<|python_start|>[reply(text="Hi")]<|python_end|>', [HI]),
    "nemotron": (f"<TOOLCALL>[{JSON}]</TOOLCALL>", [HI]),
    "apertus": ('<|tools_prefix|>[{"reply": {"text": "Hi"}}]<|tools_suffix|>', [HI]),
    "function gemma": (
        "<start_function_call>call:reply{text:<escape>Hi<escape>,times:3}<end_function_call>",
        [("reply", {"text": "Hi", "times": 3})],
    ),
    "gemma 4": ('<|tool_call>call:reply{text:<|"|>Hi<|"|>}<tool_call|>', [HI]),
    "lm studio": (f"[TOOL_REQUEST]{JSON}[END_TOOL_REQUEST]", [HI]),
    "olmo": ('<function_calls>reply(text="Hi")</function_calls>', [HI]),
    "xlam": (f"<tool_use>{JSON}</tool_use>", [HI]),
    "a family of tomorrow": (f"<zeta:tool_invocation>{JSON}</zeta:tool_invocation>", [HI]),
    "a family of tomorrow, with tokens": (f"<|zeta_tool_begin|>{JSON}<|zeta_tool_end|>", [HI]),
    "comments and trailing commas": ('{\n // say it\n "name": "reply", /* so */ "arguments": {"text": "Hi",},}', [HI]),
    "arguments as a string": ('{"name": "reply", "arguments": "{\\"text\\": \\"Hi\\"}"}', [HI]),
    "single quotes": ("{'name': 'reply', 'arguments': {'text': 'Hi'}}", [HI]),
    "a line break in a string": (
        '{"name": "reply", "arguments": {"text": "Hi\nthere"}}',
        [("reply", {"text": "Hi\nthere"})],
    ),
}


TRIED = [
    pytest.param(name, marks=pytest.mark.tried("models", f"call written as text: {name}", "carried out"))
    for name in FORMATS
]


@pytest.mark.parametrize("name", TRIED)
def test_a_call_is_found_in_every_format(name):
    text, wanted = FORMATS[name]
    calls = find_calls(text, TOOLS)
    assert [(call.name, call.arguments) for call in calls] == wanted
    assert [call.error for call in calls] == [None] * len(wanted)
    assert remove_calls(text, calls).strip() in ("", "Sure!")


@pytest.mark.parametrize("name", FORMATS)
def test_text_before_and_behind_a_call_stays_text(name):
    text, wanted = FORMATS[name]
    whole = f"I say it.\n\n{text}"
    calls = find_calls(whole, TOOLS)
    assert [(call.name, call.arguments) for call in calls] == wanted
    assert remove_calls(whole, calls).strip() in ("I say it.", "I say it.\n\nSure!")


@pytest.mark.parametrize("name", FORMATS)
def test_every_beginning_of_a_call_is_no_call_or_says_that_it_is_cut_off(name):
    text, wanted = FORMATS[name]
    for length in range(len(text)):
        for call in find_calls(text[:length], TOOLS):
            assert call.error == CUT_CALL or (call.name, call.arguments) in wanted


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "reply", "arguments": {"text": "Hel',
        '<tool_call>{"name": "reply", "arguments": {"text": "Hel</tool_call>',
        '{"name": "reply", "arguments": {"text": "Hel',
        '{"name": "reply", "arguments": {"text": "Hello"}',
        '```json\n{"name": "reply", "arguments": {"text": "Hel',
        "<tool_call>\n<function=reply>\n<parameter=text>\nHel",
        "<tool_call>reply\n<arg_key>text</arg_key>\n<arg_value>Hel",
        '<function=reply>{"text": "Hel',
    ],
)
def test_a_call_that_is_cut_off_is_never_carried_out(text):
    answer = read_answer(response(text), request())
    [call] = answer.calls
    assert (call.name, call.arguments, call.error) == ("reply", {}, CUT_CALL)
    assert answer.text == ""


UNKNOWN = {
    "an element with attributes": '<call tool="reply"><text>Hi</text></call>',
    "elements by the names of arguments": "<use_tool><reply><text>Hi</text></reply></use_tool>",
    "tokens around words": "<|tool_call_begin|>reply text=Hi<|tool_call_end|>",
    "a wrapper of its own": '<omega:function-call target="reply">text := Hi</omega:function-call>',
    "brackets": "[TOOL_CALL]{tool => 'reply', args => {--text 'Hi'}}[/TOOL_CALL]",
    "known tags around another form": "<tool_call>reply(text: Hi)</tool_call>",
    "an invocation without arguments that can be read": '<invoke name="reply"><arg>Hi</invoke>',
}


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=pytest.mark.tried("models", f"call in an unknown form: {form}", "never shown"))
        for form in UNKNOWN
    ],
)
def test_markup_of_an_unknown_family_is_never_shown(form, size):
    early, shown, _, answer = streamed(f"I say it.\n\n{UNKNOWN[form]}", size)
    assert early.strip() in ("", "I say it.")
    assert shown.strip() == answer.text.strip() == "I say it."
    assert all(call.error for call in answer.calls)


@pytest.mark.parametrize(
    "text",
    [
        "Hello!",
        "Kimi begins a call with <|tool_call_begin|> and ends it with <|tool_call_end|>, as I said.",
        "Say <tool_call> first, then the name of the tool, then the rest of it.",
        "<toolbar>File Edit</toolbar>",
        '<function type="button">reply to all</function>',
        "In HTML: <callout>Read this</callout>",
        "a < b, and the tool is > c",
        "",
        "Use `<tool_call>` to call a tool, and `<think>` to think.",
        'Your data is {"name": "Bob", "age": 3}.',
        '```json\n{"name": "pegasus", "version": "1"}\n```',
        '{"name": "reply", "description": "Speak", "parameters": {"type": "object", "properties": {}}}',
        '{"name": "shout", "arguments": {"text": "Hi"}}',
        "```python\nimport os\nprint(os.name)\n```",
        "reply(text)",
        "[1, 2, 3]",
        "[x] done\n[ ] to do",
        "{",
        "[" * 5000,
    ],
)
def test_other_text_is_no_call(text):
    assert read_answer(response(text), request()).calls == ()
    assert read_answer(response(text), request()).text == text


def test_an_unknown_tool_between_tags_is_a_call_that_fails():
    [call] = find_calls('<tool_call>{"name": "shout", "arguments": {"text": "Hi"}}</tool_call>', TOOLS)
    assert call.name == "shout"


@pytest.mark.parametrize("where", ["system", "message"])
def test_a_call_that_stands_in_the_prompt_is_an_echo(where):
    echo = request(**({"system": f"Say {JSON}"} if where == "system" else {"text": f"Repeat: {JSON}"}))
    assert read_answer(response(JSON), echo).calls == ()


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        (JSON, f"Here it is:\n```json\n{JSON}\n```"),
        (JSON, json.dumps(json.loads(JSON), indent=2)),
        (f"[{JSON}, {JSON}]", f"[{JSON}, {JSON}]"),
        (f"<tool_call>{JSON}{JSON}</tool_call>", f"<tool_call>{JSON}{JSON}</tool_call>"),
        (json.dumps({"page": f"<tool_call>\n{JSON}</tool_call>"}), f"It says <tool_call>\n{JSON}</tool_call>"),
        (html.escape(f"<tool_call>{JSON}</tool_call>"), f"<tool_call>{JSON}</tool_call>"),
    ],
    ids=["in a code block", "indented", "two in a list", "two in one tag", "escaped as JSON", "escaped as HTML"],
)
def test_an_echo_with_another_layout_is_no_call(prompt, answer):
    """Otherwise a stranger, or a page that is read, could have a tool called by having its text shown."""
    assert read_answer(response(answer), request(text=f"Show me: {prompt}")).calls == ()


def test_a_call_that_the_model_was_asked_for_is_made():
    """Only the JSON stood in the prompt: the tags are the model's decision."""
    assert len(read_answer(response(f"<tool_call>{JSON}</tool_call>"), request(text=f"Call {JSON}")).calls) == 1


PROMPT = "You are Pegasus.\n\n" + "\n".join(f"{n}. Rule number {n} of the house, which is kept." for n in range(12))


@pytest.mark.parametrize("before", ["", "system\n", "System:\n"])
@pytest.mark.parametrize(
    ("behind", "kept"),
    [("", ""), ("\n\nuser\nhello\nassistant\n", ""), ("\nhello\nHi there.\nhello", "Hi there.\nhello")],
)
@pytest.mark.tried("models", "base model that repeats the whole prompt", "only what it adds is an answer")
def test_an_echo_of_the_prompt_is_no_answer(before, behind, kept):
    answer = read_answer(response(f"{before}{PROMPT}{behind}"), request(system=PROMPT))
    assert answer.text == kept


@pytest.mark.parametrize("text", [f"My rules are:\n{PROMPT[20:]}", "You are Pegasus.", "hello"])
def test_a_quote_of_the_prompt_is_an_answer(text):
    assert read_answer(response(text), request(system=PROMPT)).text == text


def test_a_call_in_backquotes_is_quoted():
    text = f"Write `<tool_call>{JSON}</tool_call>` for it."
    assert read_answer(response(text), request()).calls == ()


@pytest.mark.parametrize("block", [f"```json\n{JSON}\n```", f"```xml\n<tool_call>{JSON}</tool_call>\n```"])
def test_an_example_in_a_code_block_is_no_call_of_a_model_that_calls_properly(block):
    text = f"For example:\n\n{block}\n\nThat is the format."
    proper = AssistantTurn(calls=(ToolCall("call_1", "current_time", {}),))
    asked = ModelRequest(
        system="", turns=(UserTurn(text="a"), proper, UserTurn(text="How is it written?")), tools=TOOLS
    )
    assert read_answer(response(text), asked).calls == ()
    assert len(read_answer(response(block), asked).calls) == 1  # nothing but the call
    assert len(read_answer(response(text), request()).calls) == 1  # it may know no other way


def test_without_tools_nothing_is_a_call():
    assert read_answer(response(JSON), request(tools=())).calls == ()
    assert read_answer(response(JSON), request(tool_choice="none")).calls == ()


def test_calls_of_the_server_are_not_looked_for_twice():
    made = ToolCall("c1", "reply", {"text": "Hi"})
    answer = read_answer(ModelResponse(f"I call {JSON}", (made,), Usage(), "tool_calls"), request())
    assert answer.calls == (made,)


def test_ids_are_unique_and_the_same_when_asked_again():
    [first, second] = read_answer(response(JSON + JSON), request()).calls
    assert first.id != second.id
    assert read_answer(response(JSON + JSON), request()).calls == (first, second)


# ------------------------------------------------------------------ reasoning


@pytest.mark.parametrize(
    ("text", "visible", "reasoning"),
    [
        ("<think>Hm.</think>\n\nHello", "Hello", "Hm."),
        ("<thinking>Hm.</thinking>Hello", "Hello", "Hm."),
        ("<think>Hm.", "", "Hm."),
        ("<think>Hm.</thinking>Hello", "Hello", "Hm."),
        ("Hm.</think>\nHello", "Hello", "Hm."),
        ("<think>\n\n</think>\n\nHello", "Hello", ""),
        ("One <think>a</think>two <think>b</think>three", "One two three", "a\n\nb"),
        (f"<think>Maybe {JSON}", "", f"Maybe {JSON}"),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>",
            "Hello",
            "Hm.",
        ),
        ("The tag `<think>` begins it.", "The tag `<think>` begins it.", ""),
        ("1 < 2", "1 < 2", ""),
    ],
)
def test_reasoning_is_told_from_text(text, visible, reasoning):
    assert split_reasoning(text) == (visible, reasoning)
    answer = read_answer(response(text), request())
    assert (answer.text, answer.reasoning, answer.calls) == (visible, reasoning, ())


def test_a_call_behind_reasoning_is_carried_out_and_one_within_is_not():
    answer = read_answer(response(f"<think>{JSON}</think>{JSON.replace('Hi', 'Ho')}"), request())
    assert [call.arguments for call in answer.calls] == [{"text": "Ho"}]


def test_partial_text_shows_neither_reasoning_nor_calls():
    assert visible_text("<think>Hm.</think>Hello <tool_call>{", request()) == "Hello "
    assert visible_text("<think>Hm.", request()) == ""


# ------------------------------------------------------------------ streamed


def response(text, stop_reason="end"):
    return ModelResponse(text, (), Usage(), stop_reason)


def request(text="hello", system="You are a test.", tools=TOOLS, **fields):
    return ModelRequest(system, (UserTurn(text=text),), tools, **fields)


def streamed(text, size, tools=TOOLS):
    """Text that was shown before the end of the answer, all text and reasoning that was passed on, and the answer."""
    pieces = []

    def hear(heard):
        for piece in heard:
            pieces.clear() if piece is None else pieces.append(piece)

    listener = AnswerFilter(request(tools=tools), PieceRelay(hear))
    for start in range(0, len(text), size):
        listener([TextPiece(text[start : start + size])])
    early = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    answer = listener.finish(response(text))
    shown = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    reasoning = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece))
    return early, shown, reasoning, answer


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", FORMATS)
def test_no_part_of_a_call_is_shown(name, size):
    text, wanted = FORMATS[name]
    early, shown, _, answer = streamed(f"I say it.\n\n{text}", size)
    assert shown == answer.text
    assert len(answer.calls) == len(wanted)
    if "behind words" not in name:
        assert early.strip() == "I say it."


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "text", ["<think>Hm.</think>\n\nHello", "Hello <think>Hm.</think>there", "<think>Hm.", "1 < 2 and `<think>`"]
)
def test_reasoning_is_passed_on_as_such(text, size):
    early, shown, reasoning, answer = streamed(text, size)
    assert shown == answer.text
    assert "Hm" not in early
    assert ("Hm." in reasoning) is ("Hm." in answer.reasoning)


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize(
    "text",
    [
        "Plain text, nothing else.\n\nAnd more of it.",
        '```json\n{"name": "pegasus"}\n```\nThat is all of it.',
        '{"a": 1}\nThat is all of it.',
        "```python\nprint(1)\n```\nThat is all of it.",
        "- [x] done\n[1] a note\nThat is all of it.",
    ],
)
def test_text_that_calls_nothing_is_shown_before_the_end(text, size):
    early, shown, _, answer = streamed(text, size)
    assert shown == answer.text == text
    assert early.endswith(("all of it.", "more of it."))


@pytest.mark.parametrize(
    "text", ["```json\n" + '{"a": "b"},\n' * 5000, "{" * 20_000, "<think>" + "hm " * 20_000, "word [ " * 10_000]
)
def test_long_answers_are_filtered_in_time(text):
    begun = time.process_time()
    streamed(text, 4)
    assert time.process_time() - begun < 5


def test_a_void_answer_begins_anew():
    pieces = []
    listener = AnswerFilter(request(), PieceRelay(pieces.extend))
    listener([TextPiece("<think>Hm")])
    listener([None])
    listener([TextPiece("Hello")])
    assert listener.finish(response("Hello")).text == "Hello"
    assert pieces[-1] == TextPiece("Hello")


# ------------------------------------------------------------------ arguments of calls that the server has found


@pytest.mark.parametrize(
    "raw",
    [
        '{"text": "Hi",}',
        '{"text": "Hi" /* there */}',
        '{\n  // say it\n  "text": "Hi"\n}',
        "{'text': 'Hi'}",
        '"{\\"text\\": \\"Hi\\"}"',
        '{"text": "Hi"}}',
        '{"text": "Hi"}\n{',
        '{{"text": "Hi"}}',
        '{"text": "Hi"}{"text": "Hi"}',
        '{}{"text": "Hi"}',
        '```json\n{"text": "Hi"}\n```',
        '{"text": "Hi"}<|im_end|>',
        '{"text": "Hi"}</tool_call>',
        "{'text': 'Hi',}}",
        '[{"text": "Hi"}]',
    ],
)
def test_arguments_are_repaired(raw):
    assert parse_arguments(raw) == ({"text": "Hi"}, None)


@pytest.mark.parametrize(
    "raw",
    [
        '{"text": "Hi',
        '{"text": "Hi"',
        '{"text": "Hi",',
        '{"text": NaN}',
        "Hi",
        '"{\\"text\\""',
        '{"text": "Hi"}{"text": "H',
        '{"text": "Hi"}{"text": "Ho"}',
        '{"text": f"Hi"}',
        '[{"text": "Hi"}, {"text": "Ho"}]',
        "[]",
        "{{{",
    ],
)
def test_arguments_that_are_cut_off_or_no_object_are_not(raw):
    arguments, error = parse_arguments(raw)
    assert arguments == {}
    assert error


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('{"text": """Say "hi", [b] {c}"""}', 'Say "hi", [b] {c}'),
        ('{"text": """a "b""", "n": true}', 'a "b'),
        ("{'text': '''it's'''}", "it's"),
        ('{"text": `a "b"`}', 'a "b"'),
        ('{"text": <|"|>a "b"<|"|>}', 'a "b"'),
        ('{"text": r"a\\d"}', "a\\d"),
        ('{"text": "one "\n "two"}', "one two"),
    ],
)
def test_strings_of_other_languages_keep_their_text(raw, text):
    arguments, error = parse_arguments(raw)
    assert (arguments["text"], error) == (text, None)
    assert parse_object(raw, is_closed=True) == (arguments, None)


TOLD_BY_A_NAME = {
    "react": (
        'Thought: I greet.\nAction: reply\nAction Input: {"text": "Hi"}\nObservation: done\nFinal Answer: x',
        [HI],
    ),
    "qwen 2": ('✿FUNCTION✿: reply\n✿ARGS✿: {"text": "Hi"}\n✿RESULT✿', [HI]),
    "glm 4": ('reply\n{"text": "Hi"}', [HI]),
    "gpt-oss, without its tokens": (
        'analysisI greet.assistantcommentary to=functions.reply json{"text": "Hi"}',
        [HI],
    ),
    "kimi, without its tokens": ('functions.reply:0{"text": "Hi"}', [HI]),
    "gorilla": ('<<function>>[reply(text="Hi")]', [HI]),
}


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        pytest.param(
            *TOLD_BY_A_NAME[name], marks=pytest.mark.tried("models", f"call written as text: {name}", "read"), id=name
        )
        for name in TOLD_BY_A_NAME
    ],
)
def test_calls_that_only_the_name_of_a_tool_tells(text, calls):
    found = find_calls(text, TOOLS)
    assert [(call.name, call.arguments) for call in found] == calls
    assert [call.error for call in found] == [None]
    assert remove_calls(text, found) == ""


def test_plain_text_is_the_only_argument_of_a_tool():
    [call] = find_calls("Action: current_time\nAction Input: Europe/Bern", TOOLS)
    assert (call.name, call.arguments, call.error) == ("current_time", {"timezone": "Europe/Bern"}, None)


@pytest.mark.parametrize(
    "text",
    [
        "HTML has an element <reply> of late: <reply><input></reply>.",
        "Action: reply to them. That is all.",
        'reply is a tool.\n{"a": 1}',
        "reply (text) is a function: reply(x) = 2",
    ],
)
def test_words_about_a_tool_are_no_call(text):
    assert find_calls(text, TOOLS) == []


def test_no_arguments_as_an_empty_text():
    assert parse_arguments('""') == ({}, None)


def test_a_list_with_a_forgotten_comma_keeps_its_items():
    assert parse_arguments('{"texts": ["a" "b"]}') == ({"texts": ["a", "b"]}, None)


def test_arguments_of_an_answer_that_was_cut_off_are_not_repaired():
    assert parse_arguments('{"text": "Hi",}', cut="the answer was cut off")[1]
