import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pegasus import frontmatter
from pegasus.frontmatter import FrontMatterError, split


def test_front_matter_and_body_come_apart():
    assert split("---\nname: x\ntools: a, b\n---\n\n# Body\n") == ({"name": "x", "tools": "a, b"}, "# Body")


@pytest.mark.parametrize("text", ["# Only a body", "", "----\nname: x\n---\n", "text\n---\nname: x\n---"])
def test_a_text_without_front_matter_is_all_body(text):
    assert split(text) == ({}, text.strip())


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter():
    assert split("\ufeff---\r\nname: é\r\n---\r\nBody\r\n") == ({"name": "é"}, "Body")


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
def test_what_is_wrong_is_said(text, problem):
    with pytest.raises(FrontMatterError, match=problem):
        split(text)


def test_an_empty_front_matter_is_an_empty_mapping():
    assert split("---\n---\nBody") == ({}, "Body")


WORDS = st.sampled_from(
    [
        *[
            "a",
            "yes",
            "No",
            "on",
            "null",
            "true",
            '"',
            "'",
            ":",
            "#",
            "-",
            "1",
            "1.5",
            "{",
            "[",
            "&",
            "*",
            "~",
            "\\",
            "é",
            "2026-01-01",
            "!",
            "|",
            ">",
            "%",
            "@",
            "`",
            ",",
            "]",
            "}",
            "?",
            "=",
            "<<",
        ],
        ": ",
        " #",
        "a: b",
        "\t",
        " ",
        "x y",
    ]
)
VALUES = st.lists(WORDS, max_size=4).map("".join)
LINES = st.tuples(st.sampled_from(["a", "name", "yes", "b-c", "b_c", "1", "é", "- a"]), VALUES | st.text(max_size=5))


@given(st.lists(LINES.map(": ".join), min_size=1, max_size=3).map("\n".join))
def test_what_is_read_without_yaml_is_what_yaml_reads(source):
    plain = frontmatter._plainly(source.splitlines())
    if plain:
        assert plain == yaml.safe_load(source)


def test_the_built_in_types_need_no_yaml():
    code = "import sys, pegasus.tasks as t; x, _ = t.load_task_types(t.BUILT_IN_TYPES); print(*x.names(), 'yaml' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["general", "explore", "plan", "False"]
