"""Lines of a shell that a rule may allow by their text."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pegasus.policy import is_bare_code, is_bare_line


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "git log --format='%h (%an) $x; > * ~'",
        'git commit -m "a word, another one!"',
        "echo it\\'s",
        'echo "it\'s"',
        "ls äöü 日本",
        "make x=1",
        "",
    ],
)
def test_bare_lines(line):
    assert is_bare_line(line)


@pytest.mark.parametrize(
    "line",
    [
        *(f"git status {character} x" for character in ";&|<>$`~*?[({"),
        *(f'git status "{character}"' for character in ";&|<>$`~*?[({"),
        *(f"git status \\{character}" for character in ";&|<>$`~*?[({"),
        "git status\nrm x",
        "git status\rrm x",
        "git status '\n' rm x",
        "git status # '\nrm x '",
        "git status\x00",
        "git status\t",
        "git status \u202e",
        "git status \u2028rm",
        "git status \udc80",
        "PATH=. git status",
        "  LD_PRELOAD=x.so git status",
        "PATH+=:. git status",
        "a[0]=x git status",
        """git status "'" ; rm x "'" """,
        """git status \\' ; rm x '""",
        "git status 'open",
        'git status "open',
        "git status \\",
    ],
)
def test_lines_that_are_more_than_they_look_like(line):
    assert not is_bare_line(line)


@pytest.mark.parametrize("code", ["print(1)", "x = f'{1}'", "import os; os", "import os\nos", "x=f'{f()}'"])
def test_quotes_of_other_programs_hide_nothing(code):
    assert not is_bare_code(code)
    assert is_bare_code("import os")


@settings(max_examples=60, deadline=None)
@given(st.text("ab \\'\";$#=>x\n-", max_size=12))
@example("# '")
@example("a '' \"b\" \\'")
def test_a_shell_reads_a_bare_line_as_it_looks(line):
    """The words are those that another parser finds, whatever a real shell might have put in their place."""
    if not is_bare_line(line):
        return
    shown = subprocess.run(["sh", "-c", f"printf '<%s>' {line}"], capture_output=True, check=True, cwd="/").stdout
    words = shlex.split(line, comments=True)
    if "#" not in line:  # shells begin a comment only in front of a word, and shlex anywhere
        assert shown.decode() == ("".join(f"<{word}>" for word in words) or "<>")
