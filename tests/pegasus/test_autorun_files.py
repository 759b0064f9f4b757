"""Files that programs run by themselves, told by their names."""

import pytest

from pegasus.autorun_files import is_autorun_file, is_autorun_folder, may_be_autorun


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        "a/b/.git/hooks/post-checkout",
        ".git/config",
        "mirror.git/hooks/post-receive",
        ".git/modules/lib/inner/config",
        ".git/modules/lib/hooks/post-merge",
        ".git",
        ".gitmodules",
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        "project/.envrc",
        ".vscode/tasks.json",
        ".vscode",
        ".idea/runConfigurations/all.xml",
        ".venv/bin/python",
        "venv/lib/python3.12/site-packages/x.py",
        "lib/evil.pth",
        "sitecustomize.py",
        ".mcp.json",
        "docs/CLAUDE.md",
        "claude.md",
        "agents/SUBAGENT.md",
        "skills/x/SKILL.md",
        ".bashrc",
        ".profile",
        ".ssh/authorized_keys",
        ".vscode/two\nlines",
    ],
)
def test_files_that_programs_run_by_themselves(path):
    assert is_autorun_file(path)
    is_below_a_folder = any(map(is_autorun_folder, (path.rsplit("/", n)[0] for n in range(1, path.count("/") + 1))))
    assert may_be_autorun(path.rpartition("/")[2]) or is_below_a_folder


@pytest.mark.parametrize(
    "path",
    [
        "main.py",
        "Makefile",
        ".git/HEAD",
        ".git/refs/heads/config",
        ".git/objects/ab/cdef",
        "git/hooks/pre-commit",
        "my.vscode/tasks.json",
        "vscode/tasks.json",
        "venvs/x",
        "notes on CLAUDE.md.txt",
        ".npmrc/deeper",
        "path.pth.py",
        "",
    ],
)
def test_others(path):
    assert not is_autorun_file(path)


def test_folders_of_which_all_is_run_are_told_from_those_with_one_such_file():
    assert is_autorun_folder(".vscode")
    assert is_autorun_folder("a/.git/hooks")
    assert not is_autorun_folder(".git")
    assert not is_autorun_folder(".git/config")
