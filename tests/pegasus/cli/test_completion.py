"""`pegasus completion`, in the shells themselves where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def shell_env(tmp_path):
    """An environment with the command `pegasus` on the path."""
    command = tmp_path / "bin" / "pegasus"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pegasus "$@"\n')
    command.chmod(0o755)
    return {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
    }


def in_shell(shell, script, env):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    return subprocess.run(
        [shell, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_bash_completes_commands_subcommands_and_options(shell_env):
    script = """
    eval "$(pegasus completion bash)"
    for line in "pegasus co" "pegasus service un" "pegasus logs --fo"; do
      COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
      _pegasus_completion pegasus
      echo "${COMPREPLY[*]}"
    done
    """
    result = in_shell("bash", script, shell_env)
    assert (result.stdout.splitlines(), result.stderr) == (["config completion", "uninstall", "--follow"], "")


def test_fish_completes_commands(shell_env):
    result = in_shell("fish", "pegasus completion fish | source; complete -C 'pegasus serv'", shell_env)
    assert result.stdout.startswith("service"), result.stderr


def test_the_script_for_zsh_is_one(shell_env):
    result = in_shell("bash", "pegasus completion zsh", shell_env)
    assert result.stdout.lstrip().startswith("#compdef pegasus")
    if shutil.which("zsh"):
        checked = subprocess.run(["zsh", "-n"], input=result.stdout, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_an_unknown_shell_is_refused_with_those_that_are_known(pegasus):
    code, _, err = pegasus("completion", "tcsh")
    assert code == 2
    assert 'found "tcsh"; allowed: bash, zsh, fish' in err or "'tcsh'" in err


def test_names_are_completed_without_importing_the_commands(shell_env):
    script = (
        "import sys; from pegasus.cli import main; code = main([]); "
        "print(code, [name for name in sys.modules if name.startswith('pegasus.cli.')], file=sys.stderr)"
    )
    env = {**shell_env, "_PEGASUS_COMPLETE": "bash_complete", "COMP_WORDS": "pegasus se", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["plain,send", "plain,sessions", "plain,service"]
    assert done.stderr.split(maxsplit=1)[0] == "0"
    assert "pegasus.cli.send" not in done.stderr
