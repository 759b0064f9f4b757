"""An answer of any shape is read in time that grows with its length, because reading it stops everything else."""

import time

import pytest

from pegasus.models import ModelRequest, ModelResponse, TextPiece, ToolSpec, Usage, UserTurn
from pegasus.models.answers.streaming import AnswerFilter, PieceRelay, read_answer

REPLY = ToolSpec("reply", "Speak.", {"type": "object", "properties": {"text": {"type": "string"}}})
REQUEST = ModelRequest(system="", turns=(UserTurn(text="Hi"),), tools=(REPLY,))
LENGTH = 100_000

SHORT = {
    "words behind a tag": "<tool_call> I would now call the function that is named reply, to tell them the news of today.",
    "a word behind a tag": "<tool_call>" + "a" * 60,
    "slashes behind a call": '<tool_call>{"name":"reply","arguments":{}}' + "/" * 60 + "x</tool_call>",
    "comments": "{" + "/**/" * 40 + "x",
    "comments behind a call": "<tool_call>{}" + "/**/" * 40 + "x</tool_call>",
}
"""Texts of a sentence, which a pattern that can be matched in many ways would need years for."""
REPEATED = {
    "<": "",
    "{": "",
    "[": "",
    "\n{": "",
    "`": "",
    "</": "",
    "<tool_call>": "",
    "<tool_call>{": "",
    "<tools>{": "",
    "functools[": "",
    "[TOOL_CALLS]": "",
    "<|python_tag|>": "",
    "<think>": "",
    "<think></think>": "",
    "<think> a ": "",
    "<|channel|>commentary to=functions.reply ": "",
    "```json\n": "",
    "```json\n{": "",
    '{"name":': "}",
    '{"name": "x", /*': "}",
    "{/*": "",
    '{"a": {"b": 1}}\n': "",
    '{"name": "reply", "arguments": {"text": "a"}}\n': "",
    "<parameter=a>": "</function></x",
    "<arg_key></arg_key>": "</tool_call>",
    '{"': "}</tool_call>",
    "{'": "}}</tool_call>",
    "[{'": "}]</tool_call>",
    ", ": "}</tool_call>",
    '"a" ': "}</tool_call>",
    "//;[\n": "",
    ";[//": "",
    " ": "</s>",
    '{"name":"reply","arguments":{"text":"a"}} ': "</tool_call>",
    "{a}": "</tool_call>",
}
"""What is repeated: its end."""
BEGIN = {
    "<parameter=a>": "<function=reply></parameter>",
    "<arg_key></arg_key>": "<tool_call>reply",
    '{"': "<tool_call>",
    "{'": "<tool_call>{",
    "[{'": "<tool_call>{a",
    ", ": "<tool_call>{a",
    '"a" ': "<tool_call>{",
    " ": "[TOOL_CALLS]reply{}",
    '{"name":"reply","arguments":{"text":"a"}} ': "<tool_call>",
    "{a}": "<tool_call>",
}


def read(text: str, size: int = 500) -> float:
    """Return the processor seconds for reading a text that comes in pieces of a size."""
    answer_filter, start = AnswerFilter(REQUEST, PieceRelay()), time.process_time()
    for at in range(0, len(text), size):
        answer_filter([TextPiece(text[at : at + size])])
    answer_filter.finish(ModelResponse(text, (), Usage(), "end"))
    return time.process_time() - start


@pytest.mark.parametrize("text", SHORT.values(), ids=SHORT)
def test_a_sentence_costs_nothing(text: str) -> None:
    assert read(text) < 1


@pytest.mark.parametrize("unit", REPEATED)
def test_a_repeated_text_costs_a_fraction_of_a_second(unit: str) -> None:
    read(unit)  # packages are imported
    text = BEGIN.get(unit, "") + unit * (LENGTH // len(unit)) + REPEATED[unit]
    assert read(text) < 2


@pytest.mark.parametrize(
    "value", ["{" * 290 + "'" + "}" * 290, '{"name":' * 15 + "'reply'" + "}" * 15, "{'name':" * 90 + "1" + "}" * 90]
)
@pytest.mark.parametrize("form", ["<tool_call>{}</tool_call>", "{}\n"])
def test_many_broken_values_cost_a_fraction_of_a_second(form: str, value: str) -> None:
    """Each may be repaired, and repairing one value is much slower than reading it."""
    text = form.replace("{}", value) * (LENGTH // len(value))
    assert read(text) < 2


@pytest.mark.parametrize("unit", ["[1]\n", "{\n", '{"a":1}\n', "```python\n", "<think></think>"])
def test_a_text_that_comes_whole_costs_a_fraction_of_a_second(unit: str) -> None:
    text = unit * (LENGTH // 2 // len(unit)) + "}\n" * (LENGTH // 4)
    assert read(text, len(text)) < 2


@pytest.mark.parametrize("depth", [480, 900, 970, 5000])
@pytest.mark.parametrize(
    ("begin", "opening", "closing", "end"),
    [
        ("[TOOL_CALLS]", "[", "]", ""),
        ("<tool_call>", '{"function":', "}", "</tool_call>"),
        ('<tool_call>{"reply":{"text":', "[", "]", "}}</tool_call>"),
        ("```tool_code\na", ".a", "", "()\n```"),
        ("```tool_code\na", "()", "", "\n```"),
    ],
)
def test_deep_nesting_is_no_call_that_is_carried_out(
    begin: str, opening: str, closing: str, end: str, depth: int
) -> None:
    text = begin + opening * depth + closing * depth + end
    answer = read_answer(ModelResponse(text, (), Usage(), "end"), REQUEST)
    assert not any(call.arguments for call in answer.calls)


def test_words_behind_a_tag_are_an_answer() -> None:
    """A model that explains how it would call a tool is understood as one that speaks."""
    text = SHORT["words behind a tag"]
    answer = read_answer(ModelResponse(text, (), Usage(), "end"), REQUEST)
    assert (answer.text, answer.calls) == (text, ())
