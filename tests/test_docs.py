"""Every code block of README, CONTRIBUTING and the pages in docs is run, parsed or checked.

A block that cannot be run here has `<!-- not run: REASON -->` on the line before it. Python blocks are test files if they
define tests, else programs. Shell blocks are typed by a new user: an empty home, the stand-in model, a daemon that runs.
TOML blocks are settings that `config check` accepts. JSON must be JSON.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pegasus.cli import main as pegasus
from pegasus.observe import stop_logging
from pegasus.storage.row_files import LINE_FILES, ROW_FILES
from tests.blackbox.support.command import environment
from tests.blackbox.support.forks import can_fork, fork_program

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
OWN_TESTS = {
    "docs/actors.md": "tests/actors/test_docs.py",
    "docs/simulation.md": "tests/actors/test_docs.py",
    "docs/gateway.md": "tests/pegasus/gateway/test_docs.py",
    "docs/channels.md": "tests/pegasus/gateway/test_docs.py",
}
"""Pages whose Python and JSON blocks need more around them than a file, and the test that runs them."""
OF_OTHERS = {
    *("simple_one_for_one", "on_failure"),  # Erlang, pykka
    *("NeovateAgent", "processMessage", "updateConfig", "SessionManager", "trimBefore", "messageCount"),
    *("mainAgent", "onReply", "registerAdapter"),
    "claude_desktop_config",  # the settings of Claude Desktop
    *("MemoryManager", "ConsolidationService", "memoryWindow", "consolidationTimeout", "SkillManager"),
    *("getSkillNames", "getSkillPaths", "resolveSkillCommand", "MediaResolver", "StreamProcessor", "ContextBuilder"),
    *("synchronous_standby_names", "ReadWriteMany"),  # PostgreSQL, Kubernetes
    *("socket_mode_enabled", "WatchdogSec", "TimeoutStopSec", "start_guest_run"),  # Slack, systemd, Trio
}
"""Names of other programs and libraries that the pages mention."""
PLACEHOLDER = "…"
"""Stands for something that only the reader knows, like a key."""
PLAIN = re.compile(r"\./scripts/run ([^|&;<>$`*?(){}\\\n]+)$")
"""A command without anything that the shell acts on but quotes."""
TYPED_BY_HAND = 5
"""Plain commands that the shell and the script run. They are the same for all, and the others are forked."""
STARTS_A_DAEMON = re.compile(r"\./scripts/run( run --no-cli)?$")
NEVER = ("./scripts/test", "./scripts/bench")
"""Commands that take minutes; the tests and benches have other tests."""


def blocks(*languages):
    """Every block in one of the languages, as a parameter named by page and line."""
    found = []
    pattern = re.compile(
        r"(?P<mark><!-- not run: [^\n]+ -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
    )
    for page in PAGES:
        content = page.read_text("utf-8")
        name = str(page.relative_to(ROOT))
        if name in OWN_TESTS and not {"sh", "toml"} & set(languages):
            continue
        for match in pattern.finditer(content):
            if match["language"] in languages and not match["mark"]:
                line = content.count("\n", 0, match.start()) + 1
                found.append(pytest.param(match["text"], id=f"{name}:{line}"))
    return found


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


PROGRAMS, TESTS = [], []
for each in blocks("python"):
    (TESTS if "def test_" in each.values[0] else PROGRAMS).append(each)


@pytest.mark.parametrize("text", PROGRAMS)
def test_python_runs(tmp_path, text):
    (tmp_path / "example.py").write_text(text, "utf-8")
    result = run([sys.executable, "example.py"], cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_python_tests_pass(tmp_path):
    """By one pytest, whose start takes longer than all of them."""
    files = {f"test_{re.sub(r'[^a-z0-9]', '_', block.id)}.py": block.values[0] for block in TESTS}
    assert len(files) == len(TESTS) > 0
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rp", "-p", "no:cacheprovider"]
    result = run(command, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = {
        line.removeprefix("PASSED ").partition("::")[0] for line in result.stdout.splitlines() if "PASSED" in line
    }
    assert passed == set(files)


@pytest.mark.parametrize("text", blocks("json"))
def test_json_is_json(text):
    json.loads(text)


@pytest.mark.parametrize("text", blocks("jsonl"))
def test_json_lines_are_json(text):
    for line in text.splitlines():
        assert isinstance(json.loads(line), dict)


# ------------------------------------------------------------------ what a new user types


class User:
    """Somebody with an empty home directory and no keys."""

    def __init__(self, folder):
        self.home = folder / ".pegasus"
        self.has_typed: set[str] = set()
        self.environment = {
            name: value for name, value in os.environ.items() if not name.endswith("_API_KEY") and "PEGASUS" not in name
        }
        # Where no walls stand, commands are asked for, and nobody is here to answer.
        rule = '[{tool = "shell_exec", who = "owner", decision = "allow"}]'
        self.environment |= {"HOME": str(folder), "PEGASUS__GATEWAY__PORT": "0", "PEGASUS__HTTP__PORT": "0"}
        self.environment |= {"PEGASUS__POLICY__RULES": rule}

    def type(self, line, *, by_hand=True):
        """Run a line. by_hand: by the shell and the script that it names; else a plain command is forked, which takes less time."""
        plain = PLAIN.fullmatch(line)
        if by_hand or not plain or not can_fork(self.environment, self.environment):
            return run(["bash", "-c", line], cwd=ROOT, env=self.environment)
        env = {**self.environment, "PEGASUS_PROGRAM": "./scripts/run"}
        process = fork_program(shlex.split(plain[1]), env, ROOT, environment())
        with process.stdout as out, process.stderr as err:
            texts = [stream.read().decode() for stream in (out, err)]
        return subprocess.CompletedProcess(line, process.wait(), *texts)

    def start(self, line):
        """Start a daemon and wait until it is ready."""
        daemon = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert daemon.stdout.readline().startswith("pegasus ready ")
        return daemon

    def stop(self, daemon):
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=30)
        assert daemon.returncode == 0


@pytest.fixture
def user(tmp_path):
    return User(tmp_path)


@pytest.fixture(scope="module")
def user_at_work(tmp_path_factory):
    """A user whose daemon runs and has finished a task."""
    user = User(tmp_path_factory.mktemp("user"))
    daemon = user.start("./scripts/run run --no-cli")
    assert user.type("./scripts/run send --until-done 'run uname -s'").returncode == 0
    user.task = re.search(r"^ *(\d+) +completed", user.type("./scripts/run tasks list").stdout, re.MULTILINE)[1]
    yield user
    user.stop(daemon)


@pytest.mark.blackbox
@pytest.mark.parametrize("text", blocks("sh", "bash"))
def test_commands_run(text, user_at_work, user):
    for line in text.splitlines():
        command = line.partition("  #")[0].strip()
        if command in user_at_work.has_typed:
            continue  # pages repeat each other
        if not command or PLACEHOLDER in command or command.startswith("#") or any(word in command for word in NEVER):
            continue
        if STARTS_A_DAEMON.fullmatch(command):
            user.stop(user.start(command))
            user_at_work.has_typed.add(command)
            continue
        by_hand = len(user_at_work.has_typed) < TYPED_BY_HAND
        result = user_at_work.type(command.replace(" ID", f" {user_at_work.task}"), by_hand=by_hand)
        ended_already = "tasks cancel" in command and result.returncode == 1
        assert result.returncode == 0 or ended_already, f"{command}\n{result.stdout}{result.stderr}"
        user_at_work.has_typed.add(command)


@pytest.mark.parametrize("text", blocks("toml"))
def test_settings_are_accepted(text, user, monkeypatch, capsys):
    """In this process, since a start of the program costs more than the check."""
    user.home.mkdir(mode=0o700)
    (user.home / "pegasus.toml").write_text(text, "utf-8")
    (user.home / "pegasus.toml").chmod(0o600)
    user.environment |= dict.fromkeys(re.findall(r"\b[A-Z_]+_(?:API_KEY|BEDROCK|REGION|PROJECT)\b", text), "key")
    user.environment |= dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), "key")
    for name in os.environ.keys() - user.environment.keys():
        monkeypatch.delenv(name)
    for name, value in user.environment.items():
        monkeypatch.setenv(name, value)
    code = pegasus(["config", "check"])
    stop_logging()
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err
    assert f"{user.home}/pegasus.toml: ok" in printed.out


def test_every_page_that_is_linked_exists():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_heading_that_is_linked_exists():
    """A heading is linked by its words in lower case, with hyphens between them and without other signs, as GitHub does it."""
    headings = {}
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)]
        headings[page] = {heading.replace(" ", "-") for heading in words}
    for page in PAGES:
        for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text("utf-8")):
            linked = (page.parent / target).resolve() if target else page
            assert heading in headings.get(linked, {heading}), f"{page.name} links to {target}#{heading}"


def test_every_file_that_is_named_exists():
    """A path in backticks is one of this repository if its first folder is (git's own is not), or if it is a Python file."""
    for page in PAGES:
        for path in re.findall(r"`(?:\./)?([\w.-]+/[^`\s]*)`", page.read_text("utf-8")):
            folder = path.partition("/")[0]
            if (folder != ".git" and (ROOT / folder).is_dir()) or path.endswith(".py"):
                assert any(ROOT.glob(re.sub("<.*?>", "*", path))), f"{page.name} names {path}"


def test_every_name_of_the_code_exists():
    """A name in backticks with an underscore, or with a capital letter within, stands somewhere in the code."""
    folders = ("pegasus", "actors", "tests", "scripts", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".js")]
    known = {word for path in files if path != Path(__file__) for word in re.findall(r"\w+", path.read_text("utf-8"))}
    known |= {path.stem for path in files}
    missing = []
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # it also names what is gone
            continue
        prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for name in re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", prose):
            words = [word for word in name.split(".") if "_" in word or re.search("[a-z][A-Z]", word)]
            missing += [f"{page.name}: {name}" for word in words if word not in known | OF_OTHERS]
    assert missing == []


def test_every_dependency_is_on_its_page():
    page = (ROOT / "docs/dependencies.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [re.split(r"[^\w-]", requirement)[0] for requirement in project["dependencies"]]
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []


def test_every_small_store_is_in_the_list_of_files():
    """A file of rows, or its folder: people back these up, and edit some."""
    page = (ROOT / "docs/user/operations.md").read_text("utf-8")
    named = set(re.findall(r"^<home>/data/(\S+)", page, re.MULTILINE))
    paths = [path for path, _ in ROW_FILES.values()] + list(LINE_FILES.values())
    missing = [path for path in paths if not any(path == each or path.startswith(each) for each in named - {""})]
    assert missing == []


def test_the_names_in_the_map_are_in_the_files_beside_them():
    rows = re.findall(r"^\| .* \| (.*\.py`.*) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    for row in rows:
        words = re.findall(r"`([\w./]+)`", row)
        code = "".join((ROOT / word).read_text("utf-8") for word in words if word.endswith(".py") and "/" in word)
        for name in (word for word in words if "/" not in word and "." not in word):
            assert re.search(rf"^ *(async )?(def |class )?{name}\b", code, re.MULTILINE), (
                f"{name} is not in the files of: {row}"
            )


@pytest.mark.parametrize(("page", "test"), OWN_TESTS.items())
def test_pages_with_tests_of_their_own_are_named_there(page, test):
    assert Path(page).name.removesuffix(".md") in (ROOT / test).read_text("utf-8")
