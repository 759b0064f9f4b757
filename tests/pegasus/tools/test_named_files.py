"""The files that a command names: a yes to it is bound to what is in them."""

import os
from hashlib import blake2b

import attrs
import pytest

from pegasus.tools import ToolContext
from pegasus.tools.named_files import TooManyNames, named_files


@pytest.fixture
def context(tmp_path):
    workspace = tmp_path / "workspace"
    (workspace / "sub").mkdir(parents=True)
    for name in (
        "do.sh",
        "tool.py",
        "sub/deep.sh",
        "my script.sh",
        "a=b.sh",
        "Makefile",
        "app.js",
        "sub/package.json",
        "sub/__main__.py",
    ):
        (workspace / name).write_text(name)
    (tmp_path / "outside.sh").write_text("outside")
    (workspace / "link.sh").symlink_to("do.sh")
    (workspace / "way-out").symlink_to(tmp_path / "outside.sh")
    closed = tmp_path / "home"
    closed.mkdir()
    (closed / "token").write_text("secret")
    return ToolContext(workspace=workspace, allowed_paths=(workspace,), closed_paths=(closed,))


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("sh do.sh", {"do.sh"}),
        ("./do.sh", {"do.sh"}),
        ("sh<do.sh", {"do.sh"}),
        ("cat x;sh do.sh&&true", {"do.sh"}),
        ("bash -c 'sh \"do.sh\"'", {"do.sh"}),
        ("bash -c 'sh \"my script.sh\"'", {"my script.sh"}),
        ('bash -c "sh \\"my script.sh\\""', {"my script.sh"}),
        ("sh my\\ script.sh", {"my script.sh"}),
        ("sh d''o.sh", {"do.sh"}),
        ("F=do.sh; sh $F", {"do.sh"}),
        ("sh --rcfile=do.sh", {"do.sh"}),
        ("sh a=b.sh", {"a=b.sh"}),
        ("sh `echo do.sh`", {"do.sh"}),
        ("cd sub && sh deep.sh", {"sub/deep.sh", "sub/__main__.py", "sub/package.json"}),
        ("sh sub/../do.sh", {"do.sh"}),
        ("sh *.sh", {"do.sh", "my script.sh", "a=b.sh", "link.sh"}),
        ("python -m tool", {"tool.py"}),
        ("python -c 'import tool'", {"tool.py"}),
        ("python sub", {"sub/__main__.py", "sub/package.json"}),
        ("node app", {"app.js"}),
        ("node -e 'require(\"./app\")'", {"app.js"}),
        ("PATH=sub:$PATH deep.sh", {"sub/deep.sh", "sub/__main__.py", "sub/package.json"}),
        ("make all", {"Makefile"}),
        ("npm --prefix sub test", {"sub/package.json", "sub/__main__.py"}),
        ("sh link.sh", {"link.sh"}),
        ("sh way-out", {"way-out"}),
        ("ls -l | wc", set()),
        ("sh 'unfinished do.sh", {"do.sh"}),
        ("sh \ud800 \0 " + "x" * 10_000, set()),
        ("sh /usr/bin/env", set()),
        ("", set()),
    ],
)
def test_each_word_that_leads_to_a_file_counts(context, command, names):
    assert set(named_files({"command": command}, context)) == names


def test_folders_variables_and_code_name_files_too(context):
    assert set(named_files({"command": "sh deep.sh", "cwd": "sub"}, context)) == {
        "sub/deep.sh",
        "sub/__main__.py",
        "sub/package.json",
    }
    assert "do.sh" in named_files({"command": "sh", "env": {"BASH_ENV": "do.sh"}}, context)
    assert "do.sh" in named_files({"code": "exec(open('do.sh').read())"}, context)
    assert "sub/deep.sh" in named_files({"code": "from pathlib import Path\nPath('sub', 'deep.sh')"}, context)


def test_outside_of_the_workspace_only_folders_that_are_allowed_count(context, tmp_path):
    assert named_files({"command": f"sh {tmp_path}/outside.sh"}, context) == {}
    context = attrs.evolve(context, allowed_paths=(tmp_path,))
    assert set(named_files({"command": f"sh {tmp_path}/outside.sh"}, context)) == {f"{tmp_path}/outside.sh"}
    assert named_files({"command": f"cat {tmp_path}/home/token"}, context) == {}


def test_the_hash_is_of_what_is_in_the_file(context):
    before = named_files({"command": "sh link.sh"}, context)
    assert before == {"link.sh": blake2b(b"do.sh", digest_size=16).hexdigest()}
    (context.workspace / "do.sh").write_text("other")
    assert named_files({"command": "sh link.sh"}, context) != before
    (context.workspace / "link.sh").unlink()
    assert named_files({"command": "sh link.sh"}, context) == {}


def test_a_large_file_is_not_read_and_yet_told_apart(context):
    """A file of a gigabyte without content on the disk: written to in one place, with its times set back."""
    large = context.workspace / "large.bin"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    before, facts = named_files({"command": "cat large.bin"}, context), large.stat()
    with large.open("r+b") as file:
        file.seek(1 << 29)
        file.write(b"x")
    os.utime(large, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert named_files({"command": "cat large.bin"}, context) != before


def test_what_is_no_file_holds_nothing_up(context):
    os.mkfifo(context.workspace / "pipe")
    assert named_files({"command": "sh pipe; cat < /dev/zero; ls sub"}, context).keys() == {
        "sub/__main__.py",
        "sub/package.json",
    }


def test_a_line_with_more_words_than_can_be_looked_at_is_refused(context):
    with pytest.raises(TooManyNames):
        named_files({"command": " ".join(map(str, range(200_001)))}, context)
