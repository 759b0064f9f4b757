"""Front matter: taken apart from the body, read by YAML, and errors that name the line."""

import pytest

from pegasus.frontmatter import FrontMatterError, split


def test_front_matter_and_body_come_apart():
    assert split("---\nname: x\ntools: a, b\n---\n\n# Body\n") == ({"name": "x", "tools": "a, b"}, "# Body")


@pytest.mark.parametrize("text", ["# Only a body", "", "----\nname: x\n---\n", "text\n---\nname: x\n---"])
def test_a_text_without_front_matter_is_all_body(text):
    assert split(text) == ({}, text.strip())


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter():
    assert split("\ufeff---\r\nname: é\r\n---\r\nBody\r\n") == ({"name": "é"}, "Body")


def test_values_are_what_yaml_makes_of_them():
    source = "---\nname: 'a: b'\nactive: yes\ntools: [read_file, shell]\nlimits:\n  seconds: 5\n---\n"
    assert split(source) == (
        {"name": "a: b", "active": True, "tools": ["read_file", "shell"], "limits": {"seconds": 5}},
        "",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("---\nname: x\n", "has no end"),
        ("---\nname: [x\n---\n", "line 2: the front matter is no YAML"),
        ("---\n- x\n---\n", "found a list"),
        ("---\n1: x\n---\n", "found an object"),
        ("---\nname: !!python/object:os.system x\n---\n", "no YAML"),
        ("---\nwhen: 2026-13-45\n---\n", "no YAML"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text, problem):
    with pytest.raises(FrontMatterError, match=problem):
        split(text)


def test_an_empty_front_matter_is_an_empty_mapping():
    assert split("---\n---\nBody") == ({}, "Body")
