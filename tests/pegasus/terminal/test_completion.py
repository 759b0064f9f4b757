"""What may follow the typed text."""

from __future__ import annotations

import pytest

from pegasus.terminal.completion import Suggestions, choices, may_have_choices, parse_suggestions

KNOWN = Suggestions(
    commands={"/help": "h", "/status": "s", "/stop": "end it", "/tasks": "t", "/speech": "p"},
    skills={"/explain": "say why", "/code-review": "look at it", "/stop": "never reached"},
    models=("anthropic/claude-1", "ollama/qwen3:4b", "openai/gpt-1"),
    tasks=(("12", "fetch the report"), ("3", "dig")),
)


def offered(text, after="", known=KNOWN, folder=None):
    return [choice.text for choice in choices(text, after, known, folder)]


def test_a_slash_offers_commands_then_skills_and_leaving_last():
    assert offered("/") == [
        "/help",
        "/status",
        "/stop",
        "/tasks",
        "/speech",
        "/explain",
        "/code-review",
        "/copy",
        "/exit",
    ]
    assert offered("/ST") == ["/status", "/stop"]
    assert offered("/ex") == ["/explain", "/exit"]
    assert offered("/exi") == ["/exit"]


def test_a_part_of_a_name_finds_it_behind_those_that_begin_so():
    assert offered("/re") == ["/code-review"]


def test_a_command_hides_a_skill_of_its_name():
    assert [choice.meaning for choice in choices("/sto", "", KNOWN)] == ["end it"]


@pytest.mark.parametrize("text", ["", "hello", "see /st", "/stop now", "/stop", "/xyz", "a@b", "\n/st"])
def test_nothing_is_offered_where_nothing_fits(text):
    assert offered(text) == []


def test_nothing_is_offered_in_the_middle_of_a_word_or_before_other_words_of_a_command():
    assert offered("/st", "op") == []
    assert offered("/st", " now") == []


def test_models_tasks_and_words_behind_their_commands():
    assert offered("/model ") == [*KNOWN.models, "default"]
    assert offered("/model q") == ["ollama/qwen3:4b"]
    assert offered("/MODEL openai") == ["openai/gpt-1"]
    assert offered("/tasks ") == ["show", "cancel"]
    assert offered("/tasks show ") == ["12", "3"]
    assert offered("/tasks cancel 1") == ["12"]
    assert offered("/tasks cancel rep") == ["12"]
    assert offered("/speech m") == ["monologue"]
    assert offered("/tasks show 12 ") == []


def test_files_are_offered_folders_first_and_hidden_ones_only_when_asked_for(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").touch()
    for name in ("notes.txt", "My Notes.txt", ".hidden", 'quo"te', "es\x1bcape"):
        (tmp_path / name).touch()
    assert offered("see @", folder=tmp_path) == ["@src/", '@"My Notes.txt"', "@notes.txt"]
    assert offered("@n", folder=tmp_path) == ["@notes.txt"]
    assert offered("@.h", folder=tmp_path) == ["@.hidden"]
    assert offered("@src/", folder=tmp_path) == ["@src/main.py"]
    assert offered('@"My N', folder=tmp_path) == ['@"My Notes.txt"']
    assert offered(f"@{tmp_path}/sr", folder=tmp_path) == [f"@{tmp_path}/src/"]
    assert offered("@nothing/x", folder=tmp_path) == []
    assert offered("@~nobody-of-this-name/x", folder=tmp_path) == []


def test_a_choice_replaces_the_word_and_nothing_else(tmp_path):
    (tmp_path / "notes.txt").touch()
    assert [choice.replaces for choice in choices("see @no", "", KNOWN, tmp_path)] == [3]
    assert [choice.replaces for choice in choices("/model qw", "", KNOWN)] == [2]


def test_only_commands_and_mentions_are_looked_at():
    assert may_have_choices("/")
    assert may_have_choices("see @no")
    assert not may_have_choices("see")
    assert not may_have_choices("a@b")


@pytest.mark.parametrize("nonsense", [{}, {"commands": 1, "skills": [2], "models": "x"}, {"commands": [{}]}])
def test_an_answer_that_makes_no_sense_offers_nothing_of_it(nonsense):
    found = parse_suggestions(nonsense, {"tasks": "none"})
    assert found.skills == {}
    assert found.models == ()
    assert found.tasks == ()


def test_ids_of_questions_complete_behind_their_commands():
    known = Suggestions(questions=(("a-7f3k", "shell_exec"), ("a-9x2b", "mail__send")))
    for command in ("/approve", "/deny"):
        assert [entry.text for entry in choices(f"{command} ", "", known)] == ["a-7f3k", "a-9x2b"]
        assert [entry.text for entry in choices(f"{command} a-9", "", known)] == ["a-9x2b"]
        assert [entry.text for entry in choices(f"{command} mail", "", known)] == ["a-9x2b"]
