"""Whatever stands in a file, in arguments or in a message: a result or a plain error, and nothing gets out of its place."""

from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pegasus.main_agent.skill_invocation import parse_skill_call
from pegasus.skills import Skill, expand, format_listing
from pegasus.skills.skill import NAME, parse_skill, split_arguments

PIECES = st.sampled_from(
    [
        "$ARGUMENTS",
        "$ARGUMENTS[0]",
        "$ARGUMENTS[",
        "$1",
        "$0",
        "$12",
        "$",
        "\\",
        '"',
        "'",
        "“",
        "”",
        " ",
        "\n",
        "a",
        "é",
        "\0",
    ]
)
TEXT = st.lists(PIECES | st.text(max_size=5)).map("".join)
LINES = st.sampled_from(
    [
        "name: x",
        "name: ../x",
        "description: d",
        "allowed-tools: Bash(a b), *",
        "model: a/b",
        "context: fork",
        "a: [",
        "- x",
    ]
)
FRONT = st.lists(LINES | st.text(max_size=20), max_size=6).map("\n".join)


@given(FRONT, TEXT)
def test_any_file_is_a_skill_or_says_what_is_wrong(front, body):
    with suppress(ValueError):
        skill, _ = parse_skill(f"---\n{front}\n---\n{body}", Path("x"))
        assert skill.name == "x"
        assert skill.body
        assert skill.description.isprintable()


@given(st.text())
def test_any_folder_name_is_one_that_can_be_called_or_refused(name):
    with suppress(ValueError):
        skill, _ = parse_skill("Body", Path("skills") / name)
        assert NAME.fullmatch(skill.name)
        assert parse_skill_call(f"/{skill.name} x") == (skill.name, "x")


@given(st.lists(st.text().map(lambda text: text.replace("$", "").replace("\\", "")), min_size=2), TEXT)
def test_arguments_fill_places_and_make_none(parts, arguments):
    skill = Skill("x", "d", "$ARGUMENTS ".join(parts), Path("x"))
    assert expand(skill, arguments) == f"{arguments.strip()} ".join(parts)


@given(TEXT, TEXT, st.sampled_from([0, 1]))
def test_any_body_takes_any_arguments(body, arguments, first):
    assert isinstance(expand(Skill("x", "d", body, Path("x"), first=first), arguments), str)


@given(TEXT)
def test_words_are_parts_of_the_arguments(text):
    for word in split_arguments(text):
        assert word.replace('"', "").replace("\\", "") in text.replace('"', "").replace("\\", "")


@given(st.text())
def test_any_message_calls_a_name_or_nothing(text):
    called = parse_skill_call(text)
    assert called is None or NAME.fullmatch(called[0])


@settings(max_examples=50)
@given(st.lists(st.text(max_size=1024), max_size=40), st.integers(0, 2_000_000))
def test_a_listing_is_within_its_share(descriptions, window):
    skills = [Skill(f"s{n}", text, "Body", Path("x")) for n, text in enumerate(descriptions)]
    text = format_listing(skills, window)
    assert not text or sum(0.25 if c.isascii() else 1 for c in f"## Available Skills\n\n{text}") <= window * 0.02
