"""What a call has returned, as an editor shows it."""

import pytest

from pegasus.acp.work import shown_result
from pegasus.wire import encode_json


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"exitCode": 0, "stdout": "a *b*\n", "stderr": ""}, "```\na *b*\n```"),
        ({"exitCode": 1, "stdout": "half\n", "stderr": "broken\n"}, "```\nhalf\nbroken\n```"),
        ({"exitCode": 3, "stdout": "", "stderr": ""}, "exit code 3"),
        ({"path": "notes.txt", "content": "```tea\n", "size": 7}, "````\n```tea\n````"),
        ({"path": "notes.txt", "replacements": 1}, '{"path":"notes.txt","replacements":1}'),
    ],
)
def test_the_text_of_commands_and_files_is_shown_without_json(result, shown):
    assert shown_result(encode_json(result)) == shown


@pytest.mark.parametrize("text", ["", "plain words", "[1, 2]", '{"stdout":'])
def test_other_results_are_shown_as_they_are(text):
    assert shown_result(text) == text
