"""Front matter: taken apart from the body, read by YAML, and errors that name the line."""

import subprocess
import sys

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from pegasus.frontmatter import FrontMatterError, split

words = st.text("aN1<>-:#'\"\\,[]{}*&!|%@`?=. \té\x07", max_size=8)
readings = st.sampled_from(["a b", "true", "No", "null", "y", "<<", "<b>", "2026-01-01", "0x1f"])
values = st.lists(words | readings, max_size=3).map("".join)
keys = st.sampled_from(["name", "on", "allowed-tools", "a"])
lines = st.tuples(keys, st.sampled_from([": ", ":", ":  "]), values).map("".join) | values


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


@given(st.lists(lines, max_size=4).map("\n".join))
@example('name: a b\ndescription: "x: y # z"')
@example("name: Yes\non: a")
@example("name: a\nname: b")
def test_simple_lines_are_read_as_yaml_reads_them(source):
    if "---" in source.split():
        return
    try:
        expected = yaml.safe_load(source)
    except (yaml.YAMLError, ValueError):
        expected = "no YAML"
    if expected is None:
        expected = {}
    if not isinstance(expected, dict) or not all(isinstance(key, str) for key in expected):
        with pytest.raises(FrontMatterError):
            split(f"---\n{source}\n---\n")
    else:
        assert split(f"---\n{source}\n---\n") == (expected, "")


def test_the_files_that_pegasus_brings_along_need_no_yaml_library():
    script = (
        "import sys; from pegasus.skills import BUILT_IN, SkillCatalog; from pegasus.tasks import BUILT_IN_TYPES, load_task_types; "
        "found = len(SkillCatalog(BUILT_IN).all()), len(load_task_types(BUILT_IN_TYPES)[0]); print(all(found), 'yaml' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("key", ["argument-hint", "arguments", "metadata"])
def test_parts_that_repeat_each_other_are_counted_as_often_as_they_stand_there(key):
    """Twenty lines of YAML may stand for a billion values, which nothing may write out."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
    text = "\n".join(["---", *lines, f"{key}: *a11", "---", "Body"])
    with pytest.raises(FrontMatterError, match="more than 10,000 values"):
        split(text)
    assert split("---\na: &a [x]\nb: *a\n---\nBody")[0] == {"a": ["x"], "b": ["x"]}
