import json
import os
import shlex
import sys

import pytest
import trio

from pegasus.sandbox import CommandLimits
from pegasus.tools import ToolContext
from pegasus.tools.shell import shell_tools
from tests.pegasus.sandbox.processes import Bell, guards
from tests.pegasus.tools.calling import run_tool

SHELL, PYTHON = shell_tools(CommandLimits(grace=0.2))


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "home" / "inner").mkdir(parents=True)
    yield (tmp_path / "home").resolve()
    assert guards() == []


@pytest.fixture
def use(workspace):
    context = ToolContext(workspace=workspace, allowed_paths=(workspace,), env={"SET_BEFORE": "yes"})

    async def use(tool, within=20.0, **arguments):
        outcome = await run_tool(tool, arguments, within, context)
        return outcome.content if outcome.failed else json.loads(outcome.content)

    return use


async def test_what_a_command_gives(use):
    result = await use(SHELL, command="echo out; echo err >&2; exit 7")
    assert result.pop("durationMs") >= 0
    assert result == {"exitCode": 7, "stdout": "out\n", "stderr": "err\n", "truncated": False}


async def test_a_command_runs_in_the_workspace_or_below(use, workspace):
    assert (await use(SHELL, command="pwd"))["stdout"] == f"{workspace}\n"
    assert (await use(SHELL, command="pwd", cwd="inner"))["stdout"] == f"{workspace}/inner\n"
    assert (await use(SHELL, command="pwd", cwd=str(workspace / "inner")))["stdout"] == f"{workspace}/inner\n"


@pytest.mark.parametrize("cwd", ["..", "/", "/proc/self", "leads_out", "inner/../.."])
async def test_and_nowhere_else(use, workspace, cwd):
    (workspace / "leads_out").symlink_to("/")
    assert (await use(SHELL, command="touch ran", cwd=cwd)).startswith("Error: ")
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("cwd", ["nowhere", "file"])
async def test_a_folder_that_is_none(use, workspace, cwd):
    (workspace / "file").touch()
    assert "Error: " in await use(SHELL, command="pwd", cwd=cwd)


async def test_the_environment(use, monkeypatch):
    """The task's own and the call's variables are there, the daemon's secrets are not."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-1")
    monkeypatch.setenv("PEGASUS__GATEWAY__TOKEN", "secret-2")
    monkeypatch.setenv("SOME_TOKEN", "secret-3")
    result = await use(SHELL, command="env; tr '\\0' '\\n' < /proc/$PPID/environ", env={"MINE": "a=b c"})
    assert "secret" not in result["stdout"]
    assert {"MINE=a=b c", "SET_BEFORE=yes", "TERM=dumb"} <= set(result["stdout"].splitlines())


@pytest.mark.parametrize("env", [{"A=B": "c"}, {"": "c"}, {"A": "b\0"}])
async def test_what_is_no_environment(use, env):
    assert "is not an environment variable" in await use(SHELL, command="true", env=env)


@pytest.mark.parametrize("command", ["", "  \n"])
async def test_an_empty_command(use, command):
    assert await use(SHELL, command=command) == "Error: command is empty"


@pytest.mark.parametrize("timeout", [0, -1])
async def test_a_timeout_must_be_above_0(use, timeout):
    assert "timeout must be above 0" in await use(SHELL, command="true", timeout=timeout)


async def test_its_own_timeout_ends_it_and_keeps_what_it_wrote(use):
    result = await use(SHELL, command="echo before; sleep 1000", timeout=0.3)
    assert (result["exitCode"], result["stdout"]) == (124, "before\n")
    assert result["note"] == "ended after 0.3 s, with all it had started"


async def test_the_deadline_of_the_call_comes_first(use):
    """However long the command may take: its end is told within the deadline, not cut off by it."""
    result = await use(SHELL, within=1.0, command="echo before; trap '' TERM; sleep 1000", timeout=1000)
    assert (result["exitCode"], result["stdout"]) == (124, "before\n")


async def test_a_cancelled_call_leaves_nothing(use, workspace):
    bell = Bell(workspace / "pid")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: use(SHELL, command="setsid sh -c 'echo $$ > pid; sleep 1000' & sleep 1000"))
        pid = int(await bell.wait())
        nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_what_ran_on_in_the_background_is_told(use):
    result = await use(SHELL, command="sleep 1000 & sleep 1000 & echo ok")
    assert result["note"].startswith("2 processes still running in the background")


@pytest.mark.parametrize(
    ("command", "code", "note"),
    [
        ("kill -SEGV $$", 139, "killed by SIGSEGV"),
        ("sh -c 'kill -SEGV $$'; exit $?", 139, "exit code 139 usually means: killed by SIGSEGV"),
        ("exit 255", 255, None),
        ("exit 128", 128, None),
    ],
)
async def test_how_it_ended(use, command, code, note):
    result = await use(SHELL, command=command)
    assert (result["exitCode"], result.get("note")) == (code, note)


async def test_a_flood_is_ended_and_told(workspace):
    flooding = shell_tools(CommandLimits(flood=1 << 20))[0]
    context = ToolContext(workspace=workspace, allowed_paths=(workspace,))
    outcome = await run_tool(flooding, {"command": "yes"}, 20.0, context)
    result = json.loads(outcome.content)
    assert result["truncated"]
    assert result["note"] == "ended because it wrote more than 1 MiB"
    assert len(outcome.content) < context.max_result


async def test_a_program_that_is_not_there_says_so(use):
    result = await use(SHELL, command="no-such-program")
    assert result["exitCode"] == 127
    assert "not found" in result["stderr"]


# ------------------------------------------------------------------ Python


async def test_python_prints(use, workspace):
    result = await use(PYTHON, code="import os\nprint('ä', os.getcwd(), __name__)")
    assert (result["exitCode"], result["stdout"]) == (0, f"ä {workspace} __main__\n")


async def test_it_is_the_daemons_own_interpreter_isolated(use, workspace):
    """What lies in the workspace does not shadow modules; the daemon's packages are there."""
    (workspace / "json.py").write_text("raise SystemExit('shadowed')")
    result = await use(PYTHON, code="import json, sys, attrs; print(sys.executable, sys.flags.isolated)")
    assert result["stdout"] == f"{sys.executable} 1\n"


async def test_an_exception_is_on_stderr(use):
    result = await use(PYTHON, code="x = 1\n\n1 / 0")
    assert result["exitCode"] == 1
    assert "line 3" in result["stderr"]
    assert "ZeroDivisionError" in result["stderr"]


async def test_there_is_no_input(use):
    result = await use(PYTHON, code="input()")
    assert "EOFError" in result["stderr"]


async def test_long_code(use):
    """Longer than an argument of a program may be."""
    result = await use(PYTHON, code=f"x = {'1' * 10!r}\n" + "# filling\n" * 100_000 + "print(len(x))")
    assert result["stdout"] == "10\n"


async def test_code_that_never_ends(use):
    result = await use(PYTHON, code="print('on')\nwhile True: pass", timeout=0.5)
    assert (result["exitCode"], result["stdout"]) == (124, "on\n")


async def test_code_with_half_a_character(use):
    assert (await use(PYTHON, code="print('\ud800')"))["stdout"] == "?\n"


# ------------------------------------------------------------------ code as a program would be


async def test_a_traceback_has_the_lines_of_the_code(use):
    result = await use(PYTHON, code="def divide(x):\n    return 1 / x\n\ndivide(0)")
    assert result["exitCode"] == 1
    assert result["stderr"].startswith(
        'Traceback (most recent call last):\n  File "(code)", line 4, in <module>\n    divide(0)\n'
    )
    assert "    return 1 / x\n" in result["stderr"]


async def test_a_syntax_error_shows_its_place_and_nothing_of_ours(use):
    result = await use(PYTHON, code="def f(:\n    pass")
    assert result["stderr"].splitlines()[0].strip() == 'File "(code)", line 1'


SPAWN = """
import multiprocessing
def square(x):
    return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(square, [1, 2, 3]))
"""


async def test_processes_that_are_spawned_find_the_code(use):
    assert (await use(PYTHON, code=SPAWN))["stdout"] == "[1, 4, 9]\n"


async def test_modules_of_the_workspace_stand_behind_all_others(use, workspace):
    (workspace / "own.py").write_text("value = 3")
    (workspace / "json.py").write_text("raise SystemExit('this is not the module that was meant')")
    assert (await use(PYTHON, code="import own, json; print(own.value, json.loads('4'))"))["stdout"] == "3 4\n"


@pytest.mark.parametrize(
    ("code", "exit_code"), [("raise SystemExit(7)", 7), ("import sys; sys.exit('bad')", 1), ("", 0)]
)
async def test_the_exit_code_of_code(use, code, exit_code):
    assert (await use(PYTHON, code=code))["exitCode"] == exit_code


async def test_characters_that_are_none_do_not_fail_a_program(use):
    assert (await use(PYTHON, code="print('Grüße 日本', chr(0xD800))"))["stdout"] == "Grüße 日本 \\ud800\n"


async def test_asyncio(use):
    code = "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print('done')\nasyncio.run(main())"
    assert (await use(PYTHON, code=code))["stdout"] == "done\n"


# ------------------------------------------------------------------ a terminal


async def test_a_terminal_for_a_command(use):
    result = await use(
        SHELL,
        command="test -t 0 && printf 'loading\\rready  \\n'; stty size; tput bold",
        pty=True,
    )
    assert result["stdout"] == "ready\n40 120"


async def test_nothing_is_typed_on_the_terminal_of_a_command(use):
    assert (await use(SHELL, command="cat; echo end", pty=True))["stdout"].endswith("end")


# ------------------------------------------------------------------ nobody types here


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("pegasus.sandbox.process.QUIET", 0.3)
    monkeypatch.setattr("pegasus.sandbox.process.LONGER", 0.6)


RAW = "import select, sys, tty; tty.setcbreak(0);"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (f"{RAW} print('>>> ', end='', flush=True); sys.stdin.read(1); sys.stdin.read(1)", "keys"),  # an interpreter
        (f"{RAW}\nwhile True: print('\\x1b[Htasks', flush=True); select.select([0], [], [], 0.05)", "keys"),  # top
        (f"{RAW} print('\\x1b[?1049h~', flush=True); sys.stdin.read(1)", "keys"),  # an editor
        ("import getpass; getpass.getpass()", "password"),
    ],
)
async def test_a_program_on_a_terminal_that_waits_for_somebody_to_type_is_ended_early(use, impatient, code, what):
    result = await use(SHELL, command=f"{sys.executable} -c {shlex.quote(code)}", pty=True)
    assert what in result["note"]
    assert "command_input" in result["note"]
    assert result["exitCode"] == 124
    assert result["durationMs"] < 10_000


async def test_whoever_reads_lines_is_told_again_that_there_are_none(use, impatient):
    result = await use(SHELL, command="cat; cat; read x; echo end", pty=True)
    assert (result["exitCode"], result["stdout"].splitlines()[-1]) == (0, "end")


@pytest.mark.parametrize(
    ("command", "pty"),
    [
        ("sleep 1.5; echo worked", True),
        ("sleep 1.5; echo worked", False),
        ("printf '\\033[H\\033[2J'; sleep 1.5; echo worked", False),
        ("printf '\\033[2J\\033[1;1H'; sleep 1.5; echo worked", False),
        ("printf '\\033[?1049h\\033[5;1Hpage\\033[?1049l'; sleep 1.5; echo worked", False),
        ("script -qc 'sleep 1.5; echo worked' /dev/null", True),  # a program that passes keys on, as sudo and ssh do
        ("cat | sleep 1.5; echo worked", False),
    ],
)
async def test_a_program_that_works_in_silence_is_left_alone(use, impatient, command, pty):
    result = await use(SHELL, command=command, pty=pty)
    assert result["exitCode"] == 0
    assert result["stdout"].rstrip().endswith("worked")


async def test_an_editor_without_a_terminal_is_ended_early(use, impatient):
    result = await use(SHELL, command="printf '\\033[24;1HVim: Input is not from a terminal'; sleep 60")
    assert "it waits for keys" in result["note"]
    assert result["stdout"].strip() == "Vim: Input is not from a terminal"


async def test_colours_and_progress_bars_do_not_reach_the_model(use):
    bar = "for i in $(seq 100); do printf '\\r\\033[32m%3d %%\\033[0m' $i; done; printf '\\n'; echo done"
    result = await use(SHELL, command=f"{bar}; ({bar}) >&2")
    assert (result["stdout"], result["stderr"], result["truncated"]) == ("100 %\ndone\n", "100 %\ndone\n", False)


async def test_a_long_progress_bar_leaves_the_room_to_what_matters(use):
    bar = "import sys; [print(f'\\r{n:>70}', end='') for n in range(2_000)]; print(); print('x' * 3_000)"
    result = await use(SHELL, command=f"echo first; {sys.executable} -c {shlex.quote(bar)}")
    assert not result["truncated"]
    assert result["stdout"].split() == ["first", "1999", "x" * 3_000]
