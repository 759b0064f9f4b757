"""Skills in the prompt, within their share of the window; and for people."""

from pathlib import Path

import attrs

from pegasus.skills import Skill, format_help, format_listing


def skills(count, description="Does a thing that is described here."):
    return [Skill(f"skill-{n:03}", description, "Body", Path("x")) for n in range(count)]


def tokens(text):
    """More than any tokenizer makes of it."""
    return sum(0.25 if character.isascii() else 1 for character in text)


def test_each_skill_that_the_model_may_call_has_a_line():
    one, hidden = skills(2)
    text = format_listing([attrs.evolve(one, argument_hint="[what]"), attrs.evolve(hidden, by_model=False)], 100_000)
    assert text.startswith("A skill is a set of instructions")
    assert text.endswith("- skill-000 [what]: Does a thing that is described here.")
    assert "skill-001" not in text


def test_a_description_that_is_too_long_ends_with_a_whole_word():
    text = format_listing(skills(1, "Commits the changes of a repository, with a message that says why."), 8_192)
    assert text.endswith("- skill-000: Commits the changes of a…")
    assert "…" in format_listing(skills(1, "做" * 200), 8_192)


def test_without_skills_there_is_no_section():
    assert format_listing([], 100_000) == ""
    assert format_listing([attrs.evolve(skills(1)[0], by_model=False)], 100_000) == ""


def test_it_never_takes_more_than_its_share_of_the_window():
    for window in (8_000, 32_000, 128_000, 1_000_000):
        for description in ("Does a thing. " * 70, "做一件事情。" * 150):
            text = format_listing(skills(400, description), window)
            assert tokens(f"## Available Skills\n\n{text}") <= window * 0.02
            assert "- skill-000" in text


def test_what_does_not_fit_is_counted():
    text = format_listing(skills(400), 32_000)
    shown = text.count("\n- skill-")
    assert 10 < shown < 400
    assert text.endswith(
        f"({400 - shown} more skills are not listed, for lack of space. They can be called by name as well.)"
    )


def test_a_window_with_no_room_has_no_section():
    assert format_listing(skills(3), 1_000) == ""


def test_people_see_what_they_may_call_by_name():
    one, two = skills(2)
    two = attrs.evolve(two, description="Does it, e.g.: this. Then more.", argument_hint="<what>")
    shown = format_help([two, one, attrs.evolve(one, name="mine", by_user=False)])
    assert shown.splitlines() == [
        "/skill-000 — Does a thing that is described here.",
        "/skill-001 <what> — Does it, e.g.: this.",
    ]
    assert format_help([]) == ""
