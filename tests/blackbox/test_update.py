"""`pegasus update`: versions that are installed by pip, with deliberate defects; kills, full disks, and messages meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from pegasus.host import Home, read_daemon
from tests.blackbox.support import until
from tests.blackbox.support.daemon import Daemon, _Drain
from tests.blackbox.support.shared_state import move_files
from tests.blackbox.support.versions import NO_INDEX, install_version, make_version

pytestmark = [pytest.mark.real_time, pytest.mark.deadline(120)]

DAEMON = "pegasus/app/daemon.py"
FORM = "pegasus/host/data_format.py"
NEW_FORM = {FORM: ("FORMAT: Final = 2\n", "FORMAT: Final = 3\n")}
MIGRATIONS = "MIGRATIONS: Final[Mapping[int, Callable[[Path], None]]] = {}"
BROKEN_MIGRATION = (
    "def _broken(data):\n    (data / 'inbox' / 'inbox.jsonl').write_bytes(b'')\n    (data / 'half').touch()\n"
    "    raise OSError(28, 'No space left on device', 'half')\n"
)


class Installed(Daemon):
    """An agent that runs from an installation by pip, in a shell."""

    def __init__(self, program, home):
        settings = {"models.default": "offline/stand-in", "sandbox.mode": "off", "run.shutdown_grace": 3.0}
        super().__init__(home, settings, env=NO_INDEX)
        del self.env["PYTHONPATH"]
        self.program = str(program)

    def spawn(self, *arguments):
        if not (self.home / "pegasus.toml").exists():
            self.configure()
        move_files(self.home)
        command = [self.program, "--home", str(self.home), *(arguments or ("run", "--no-cli"))]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            cwd=self.home.parent,
        )
        self._out, self._err = _Drain(self.process.stdout), _Drain(self.process.stderr)

    async def found(self, version, within=40):
        """The agent of this version once it is announced; the client's address follows it."""

        def look():
            daemon = read_daemon(Home(self.home))
            return daemon if daemon is not None and daemon.version == version else None

        daemon = await until(look, f"an agent of version {version}", within)
        self.at = type(self._ready)(daemon.ws, daemon.http or "-", daemon.pid)
        return daemon

    async def call(self, *arguments):
        """Run a command of the installed program to its end."""
        return await trio.run_process(
            [self.program, "--home", str(self.home), *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=self.env,
        )

    def update(self, wheel, *options, within=20):
        return Update(self, [str(wheel), "--yes", "--within", str(within), *options])

    @property
    def format(self):
        return (self.home / "data" / "VERSION").read_text().strip()

    @property
    def last(self):
        return json.loads((self.home / "versions" / "last.json").read_text())


class Update:
    """`pegasus update` as a process, whose lines can be waited for."""

    def __init__(self, agent, arguments):
        self.process = subprocess.Popen(
            [agent.program, "--home", str(agent.home), "update", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=agent.env,
        )
        self._out, self._err = _Drain(self.process.stdout), _Drain(self.process.stderr)

    async def says(self, text):
        await until(lambda: text in self._out.text or self.process.poll() is not None, f"{text!r} of the update", 60)
        assert text in self._out.text, self._out.text + self._err.text

    def kill(self):
        self.process.kill()
        self.process.wait()

    async def end(self):
        await until(lambda: self.process.poll() is not None, "the end of the update", 90)
        self._out.join(5)
        self._err.join(5)
        return self.process.returncode, self._out.text, self._err.text


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """wheels(version, changes): a wheel of the product with these changes."""
    folder = tmp_path_factory.mktemp("wheels")
    return lambda version="0.2.0", changes=None: make_version(folder / os.urandom(4).hex(), version, changes)


@pytest.fixture(scope="module")
def program(wheels, tmp_path_factory):
    return install_version(wheels("0.1.0"), tmp_path_factory.mktemp("installed") / "env")


@pytest.fixture
async def agent(program, tmp_path):
    agent = Installed(program, tmp_path / "home")
    await agent.start()
    try:
        yield agent
    finally:
        if (daemon := read_daemon(Home(agent.home))) is not None:
            with suppress(ProcessLookupError):
                os.kill(daemon.pid, signal.SIGKILL)


async def says(agent, text, id):
    """A person writes, and is answered once; the message is sent again after a connection that was cut, as clients do."""
    async with agent.client("web", "c1") as page:
        await page.post(text, id)
        reply = await page.reply(timeout=20)
        await page.ack(reply)
        return reply


@asynccontextmanager
async def runs_on(agent, version):
    """Whatever happened, this version runs, answers, and has everything from before."""
    await says(agent, "hello", "before")
    yield
    await agent.found(version)
    await says(agent, "hello again", "after")
    inbox = (agent.home / "data" / "inbox" / "inbox.jsonl").read_text()
    assert "before" in inbox
    assert "after" in inbox
    assert not (agent.home / "versions" / "switch.json").exists()


async def test_another_version_takes_over_in_the_same_process_and_nothing_is_lost(agent, wheels):
    pid, answered = agent.pid, []

    async def write_all_the_time(task_status=trio.TASK_STATUS_IGNORED):
        """Write one message after another; one that was not acknowledged is sent again, as clients do."""
        task_status.started()
        for n in range(1000):
            while True:
                with suppress(Exception):
                    answered.append((n, await says(agent, f"number {n}", f"n{n}")))
                    break
                await trio.sleep(0.2)
                await agent.found((read_daemon(Home(agent.home)) or agent_of("0.1.0")).version)
            await trio.sleep(0.3)

    async with runs_on(agent, "0.2.0"), trio.open_nursery() as nursery:
        await nursery.start(write_all_the_time)
        update = agent.update(wheels(), within=8)
        await update.says("trying 0.2.0")
        second = await agent.call("update", "0.3.0")
        assert second.returncode == 75
        assert f"another update is being made (process {update.process.pid})" in second.stderr.decode()
        code, out, err = await update.end()
        assert code == 0, out + err
        nursery.cancel_scope.cancel()
    assert (await agent.found("0.2.0")).pid == pid
    numbers = [n for n, _ in answered]
    assert numbers == list(range(len(numbers)))
    assert (await agent.call("--version")).stdout == b"pegasus 0.2.0\n"
    assert agent.last["version"] == "0.2.0"
    assert agent.last["before"] == "0.1.0"
    assert not agent.last.get("problem")
    assert "updated from 0.1.0" in (await agent.call("doctor")).stdout.decode()
    assert (
        await agent.call("restore", agent.last["backup"], "--into", str(agent.home.parent / "copy"))
    ).returncode == 0


def agent_of(version):
    return type("Nobody", (), {"version": version})


@pytest.mark.files("another version changes the form of the files")
async def test_one_that_breaks_the_data_and_ends_leaves_no_trace(agent, wheels):
    broken = {FORM: (MIGRATIONS, f"{BROKEN_MIGRATION}{MIGRATIONS[:-1]}2: _broken}}\nFORMAT = 3")}
    async with runs_on(agent, "0.1.0"):
        code, out, err = await agent.update(wheels(changes=broken)).end()
        assert code == 1, out + err
        assert "0.2.0 was not taken: it ended with exit code 1: [Errno 28] No space left on device: 'half'" in err
        assert "Traceback" not in err
    assert agent.format == "2"
    assert not (agent.home / "data" / "half").exists()
    assert agent.last["problem"]
    assert [path.name for path in (agent.home / "versions").iterdir() if path.is_dir()] == []
    assert "was not taken" in (await agent.call("doctor")).stdout.decode()


async def test_one_that_ends_within_its_minute_is_replaced_and_what_was_accepted_stays(agent, wheels):
    dies = {DAEMON: ("nursery.start_soon(notifier.keep_alive)", "await trio.sleep(2); os._exit(9)")}
    async with runs_on(agent, "0.1.0"):
        update = agent.update(wheels(changes=dies), within=12)
        await agent.found("0.2.0")
        await says(agent, "to the new one", "meanwhile")
        code, out, err = await update.end()
        assert code == 1, out + err
        assert "0.2.0 was not taken: it ended" in err
    assert "meanwhile" in (agent.home / "data" / "inbox" / "inbox.jsonl").read_text()


@pytest.mark.files("another version changes the form of the files")
async def test_one_that_does_not_open_its_doors_is_replaced_with_the_data_from_before(agent, wheels):
    changes = {**NEW_FORM, DAEMON: ("channels.follow(group)", "await trio.sleep_forever()")}
    async with runs_on(agent, "0.1.0"):
        code, out, err = await agent.update(wheels(changes=changes), within=6).end()
        assert code == 1, out + err
        assert "was not ready within 6" in err
    assert agent.format == "2"


@pytest.mark.files("another version changes the form of the files")
async def test_one_that_is_older_than_the_data_is_refused_while_the_agent_runs_on(agent, wheels):
    older = wheels("0.0.9", {FORM: ("FORMAT: Final = 2\n", "FORMAT: Final = 1\n")})
    started = read_daemon(Home(agent.home))
    code, _, err = await agent.update(older).end()
    assert code == 1
    assert "0.0.9 is older than the data: it knows format 1, found 2" in err
    assert read_daemon(Home(agent.home)) == started


@pytest.mark.files("another version changes the form of the files")
@pytest.mark.parametrize("step", ["stopping the agent", "trying 0.2.0", "the migration", "0.2.0 runs"])
async def test_kill_9_of_the_update_leaves_the_old_or_the_new_one(agent, wheels, step):
    async with runs_on(agent, "0.2.0" if step == "0.2.0 runs" else "0.1.0"):
        update = agent.update(wheels(changes=NEW_FORM), within=3 if step == "0.2.0 runs" else 20)
        await update.says("trying 0.2.0" if step == "the migration" else step)
        if step == "the migration":
            await until(lambda: agent.format == "3", "the migration", 20)
        update.kill()
    assert agent.format == ("3" if step == "0.2.0 runs" else "2")
    assert agent.process.poll() is None


@pytest.mark.files("another version changes the form of the files")
async def test_kill_9_of_the_agent_that_waits_does_not_stop_the_update(agent, wheels):
    two_steps = "def _mark(data):\n    with (data / 'steps').open('a') as file:\n        file.write('step ')\n"
    changes = {FORM: (MIGRATIONS, f"{two_steps}{MIGRATIONS[:-1]}2: _mark, 3: _mark}}\nFORMAT = 4")}
    async with runs_on(agent, "0.2.0"):
        update = agent.update(wheels(changes=changes), within=6)
        await update.says("trying 0.2.0")
        agent.kill()
        code, out, err = await update.end()
        assert code == 0, out + err
    assert agent.format == "4"
    assert (agent.home / "data" / "steps").read_text() == "step step "


@pytest.mark.files("another version changes the form of the files")
async def test_kill_9_of_both_is_mended_by_the_next_start(agent, wheels):
    async with runs_on(agent, "0.1.0"):
        update = agent.update(wheels(changes=NEW_FORM))
        await update.says("trying 0.2.0")
        await until(lambda: agent.format == "3", "the migration", 20)
        agent.kill()
        update.kill()
        await agent.start()
        assert "an update was not completed; the version before it runs" in agent.stderr
    assert agent.format == "2"


@pytest.fixture
def full_backups(agent):
    """The folder of backups on a file system without room."""
    folder = agent.home / "backups"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    with suppress(OSError), (folder / "ballast").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    yield
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_disk_stops_an_update_before_anything_is_changed(agent, wheels, full_backups):
    async with runs_on(agent, "0.1.0"):
        code, out, err = await agent.update(wheels()).end()
        assert code == 1, out + err
        assert "no update without a backup, which cannot be made" in err
        assert "No space left on device" in err
