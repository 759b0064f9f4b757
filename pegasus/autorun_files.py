"""Files that programs run or obey by themselves, told by their names.

A person who opens a folder in an editor, enters it in a shell or says `git status` there starts what such files name: hooks, tasks,
settings that hold commands, modules that an interpreter loads first. So whoever writes one acts outside of the walls, with that
person's rights, some time later. Files that people run knowingly (a Makefile, a script) are not among them.

    is_autorun_file("project/.git/hooks/pre-commit")  # True
    is_autorun_file("project/src/main.py")            # False

The list is a help for known programs and never complete. It is the same for tools that write files and for commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

AUTORUN_PATTERNS: Final = (
    # git runs hooks, and programs that its settings name. A file `.git`, and `commondir`, lead to settings somewhere else.
    ".git",
    "*.git/hooks/**",
    "*.git/config",
    "*.git/config.worktree",
    "*.git/commondir",
    "*.git/modules/**/hooks/**",
    "*.git/modules/**/config",
    "*.git/modules/**/commondir",
    "*.git/worktrees/*/config.worktree",
    "*.git/worktrees/*/commondir",
    ".gitmodules",
    ".gitconfig",
    ".config/git/**",
    ".hg/hgrc",
    ".husky/**",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    # Shells, terminals and sessions at their start.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".tmux.conf",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".pam_environment",
    ".ssh/**",
    ".config/fish/**",
    ".config/autostart/**",
    ".config/systemd/**",
    ".config/environment.d/**",
    # Programs that set up a folder when a shell enters it.
    ".envrc",
    ".direnv/**",
    ".mise.toml",
    "mise.toml",
    ".tool-versions",
    # Editors and debuggers when they open a folder.
    ".vscode/**",
    "*.code-workspace",
    ".idea/**",
    ".devcontainer/**",
    ".devcontainer.json",
    ".zed/**",
    ".fleet/**",
    ".vimrc",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".vim/**",
    ".config/nvim/**",
    ".emacs",
    ".emacs.d/**",
    ".dir-locals.el",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    # Python loads these before the program that was meant, and pip obeys its settings.
    ".venv/**",
    "venv/**",
    "pyvenv.cfg",
    "*.pth",
    "sitecustomize.py",
    "usercustomize.py",
    "pip.conf",
    ".pypirc",
    # Package managers and builds: settings that name programs to run.
    ".npmrc",
    ".yarnrc*",
    ".yarn/plugins/**",
    ".yarn/releases/**",
    ".pnpmfile.cjs",
    ".pnp.cjs",
    "bunfig.toml",
    ".cargo/config",
    ".cargo/config.toml",
    ".mvn/**",
    ".bazelrc",
    # Other agents: their orders, and servers that they start.
    ".mcp.json",
    "CLAUDE.md",
    "CLAUDE.local.md",
    ".claude/**",
    "GEMINI.md",
    ".gemini/**",
    ".cursorrules",
    ".cursor/**",
    ".windsurfrules",
    "copilot-instructions.md",
    "SUBAGENT.md",
    "SKILL.md",
)
"""Names, each at any depth. `*` stands for a part of a name, `**` for names at any depth; `x/**` is the folder and all below."""


def _compile(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return the expression that finds one of the patterns at the end of a path. Letter case does not matter, as on some disks."""
    forms = []
    for pattern in patterns:
        text = re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
        forms.append(text.removesuffix("/.*") + "(?:/.*)?" if pattern.endswith("/**") else text)
    return re.compile(rf"(?:^|/)(?:{'|'.join(forms)})\Z", re.IGNORECASE | re.DOTALL)


@cache
def _all() -> re.Pattern[str]:
    """Return the expression of all; it is compiled at its first use, in 2 ms."""
    return _compile(AUTORUN_PATTERNS)


@cache
def _whole() -> re.Pattern[str]:
    """Return the expression of folders of which all is meant."""
    return _compile(pattern for pattern in AUTORUN_PATTERNS if pattern.endswith("/**"))


_LAST: Final = [pattern.removesuffix("/**").rpartition("/")[2].lower() for pattern in AUTORUN_PATTERNS]
_NAMES: Final = frozenset(name for name in _LAST if "*" not in name)
_FORMS: Final = _compile(sorted({name for name in _LAST if "*" in name}))


def may_be_autorun(name: str) -> bool:
    """Return whether a file or folder of this name, without a path, could be one. Cheap, for whoever looks at thousands of names."""
    return name.lower() in _NAMES or _FORMS.search(name) is not None


def is_autorun_file(path: str) -> bool:
    """Return whether programs run or obey the file at this path by themselves.

    path: where links lead to, relative to the folder that is written to (the workspace, or a folder that the owner has opened):
    what is above that folder says nothing about it. Also True for a folder of which that is true of all below (`.vscode`).
    """
    return _all().search(path) is not None


def is_autorun_folder(path: str) -> bool:
    """Return whether programs run or obey all that is below the folder at this path, as of `.vscode` and `.git/hooks`.

    path: as of `is_autorun_file`.
    """
    return _whole().search(path) is not None
