"""The commands as processes: what they print where, and their exit codes."""

from __future__ import annotations

import json
import signal
import stat
import subprocess

import trio

from tests.blackbox.support import HANG, SILENCE, Book, Daemon, command, environment, running, say, serving
from tests.blackbox.support.command import PROGRAM

STAND_IN = {"models.default": "offline/stand-in"}
COMMANDS = (["send", "hello"], ["chat"], ["status"], ["tree"])


async def test_send_prints_the_reply_and_nothing_else(stage, name):
    async with stage.play(Book(), name) as daemon:
        result = await daemon.command("send", "--channel", name, "hello")
        assert (result.code, result.out, result.err) == (0, "echo: hello\n", "")


async def test_send_prints_all_replies_of_the_turn(stage, name):
    async with stage.play(Book({"hello": say("one", "two\nlines", "three")}), name) as daemon:
        result = await daemon.command("send", "--channel", name, "hello")
        assert (result.code, result.out) == (0, "one\ntwo\nlines\nthree\n")


async def test_send_from_stdin_and_to_a_channel(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        result = await daemon.command("send", "-", "--channel", name, stdin="zwei\nZeilen ä\n".encode())
        assert (result.code, result.out) == (0, "echo: zwei\nZeilen ä\n")
        assert (book.asked[0].question.type, book.asked[0].question.id) == ("cli", name)


async def test_send_without_a_reply_in_time(stage, name):
    async with stage.play(Book({"hello": HANG}), name) as daemon:
        result = await daemon.command("send", "--channel", name, "hello", "--wait", "0.5")
        assert (result.code, result.out) == (1, "")
        assert len(result.err.splitlines()) == 1


async def test_send_to_an_agent_that_chooses_silence(stage, name):
    async with stage.play(Book({"👍": SILENCE}), name) as daemon:
        await daemon.command("send", "--channel", name, "hi")  # the model uses the reply tool: its text is not heard
        result = await daemon.command("send", "--channel", name, "👍", "--wait", "1")
        assert (result.code, result.out) == (1, "")


async def test_a_reply_after_the_wait_is_not_taken_for_the_next_answer(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        book.hold()
        assert (await daemon.command("send", "--channel", name, "slow", "--wait", "0.5")).code == 1
        book.release()
        result = await daemon.command("send", "--channel", name, "quick")
        assert (result.code, result.out) == (0, "echo: quick\n")


async def test_send_commands(stage, name):
    async with stage.play(book := Book({"hello": HANG}), name) as daemon:
        await daemon.command("send", "--channel", name, "hello", "--wait", "0.2")
        await book.reached(1)
        result = await daemon.command("send", "--channel", name, "/stop")
        assert result.code == 0
        assert "hello" in result.out
        await book.abandoned()


async def test_commands_without_a_daemon(tmp_path):
    for arguments in COMMANDS:
        result = await command("--home", str(tmp_path / "home"), *arguments)
        assert (result.code, result.out) == (1, ""), arguments
        [line] = result.err.splitlines()
        assert f"pegasus --home {tmp_path / 'home'} run" in line


async def test_commands_after_a_kill_notice_that_the_daemon_is_gone(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        daemon.kill()
        assert (daemon.home / "run" / "daemon.json").exists()
        for arguments in COMMANDS:
            result = await daemon.command(*arguments)
            assert (result.code, len(result.err.splitlines())) == (1, 1), arguments


async def test_commands_with_the_wrong_token(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        (daemon.home / "token").write_text("something else\n")
        for arguments in COMMANDS:
            result = await daemon.command(*arguments)
            assert (result.code, result.out) == (1, ""), arguments
            assert "token" in result.err


async def test_chat_on_a_pipe(stage, name):
    async with stage.play(book := Book({"two": say("a", "b")}), name) as daemon:
        result = await daemon.command("chat", "--channel", name, stdin=b"one\n\n  \ntwo\nwithout end")
        assert (result.code, result.out) == (0, "echo: one\na\nb\necho: without end\n")
        assert [(view.question.type, view.question.id) for view in book.asked] == [("cli", name)] * 3


async def test_chat_on_a_pipe_goes_on_after_silence(stage, name):
    async with stage.play(Book({"👍": SILENCE}), name) as daemon:
        result = await daemon.command("chat", "--channel", name, stdin="hi\n👍\nhello\n".encode())
        assert (result.code, result.out) == (0, "echo: hi\necho: hello\n")


async def test_chat_on_a_pipe_survives_a_restart_of_the_daemon(tmp_path):
    async with serving(tmp_path, book := Book()) as daemon, trio.open_nursery() as nursery:
        book.hold(after=1)
        arguments = [*PROGRAM, "--home", str(daemon.home), "chat"]
        process = await nursery.start(_background, arguments, daemon.env, b"one\ntwo\nthree\n")
        await book.reached(2)
        daemon.kill()
        book.release()
        await daemon.start()
        seen = b""
        with trio.fail_after(20):
            async for chunk in process.stdout:
                seen += chunk
                if seen.endswith(b"echo: two\n"):
                    break
        assert seen == b"echo: one\necho: two\n"
        process.kill()


async def test_chat_with_nothing_to_say(stage, name):
    async with stage.play(book := Book(), name) as daemon:
        result = await daemon.command("chat", "--channel", name, stdin=b"")
        assert (result.code, result.out, book.asked) == (0, "", [])


async def test_status(stage, name):
    async with stage.play(Book(), name) as daemon:
        text = await daemon.command("status")
        assert text.code == 0
        assert "test/model-1" in text.out
        facts = json.loads((await daemon.command("status", "--json")).out)
        assert facts["model"] == "test/model-1"


async def test_tree(shared):
    daemon = shared
    text = await daemon.command("tree")
    assert text.code == 0
    for actor in ("journal", "main-agent", "gateway"):
        assert actor in text.out
    assert json.loads((await daemon.command("tree", "--json")).out)["children"]


async def test_tree_watch_ends_with_ctrl_c(shared):
    daemon = shared
    async with trio.open_nursery() as nursery:
        arguments = [*PROGRAM, "--home", str(daemon.home), "tree", "--watch", "--json"]
        process = await nursery.start(_background, arguments, daemon.env)
        seen = b""
        with trio.fail_after(15):
            async for chunk in process.stdout:
                seen += chunk
                if seen.count(b"\n") >= 2:
                    break
        assert all(json.loads(line) for line in seen.splitlines()[:2])
        process.send_signal(signal.SIGINT)
        with trio.fail_after(10):
            assert await process.wait() == 0


async def test_a_reader_that_leaves_gets_no_traceback(shared):
    daemon = shared
    for arguments in ("tree", "status", "config show", "send hello"):
        script = f"'{PROGRAM[0]}' -m pegasus --home '{daemon.home}' {arguments} | true"
        done = await trio.run_process(["sh", "-c", script], env=daemon.env, capture_stderr=True, check=False)
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr


# ------------------------------------------------------------------ init


async def test_init_makes_a_home_that_runs(tmp_path):
    home = tmp_path / "new" / "home"
    result = await command("--home", str(home), "init", "--yes")
    assert result.code == 0
    for name in ("pegasus.toml", "token"):
        assert (home / name).exists(), name
        assert str(home / name) in result.out
    assert stat.S_IMODE((home / "token").stat().st_mode) == 0o600
    assert (await command("--home", str(home), "config", "check")).code == 0
    daemon = Daemon(home, options=("--set", "gateway.port=0", "--set", "http.port=0"))
    token = daemon.token
    await daemon.start()
    async with daemon.client() as client:
        assert await client.ask("hello")
    assert daemon.token == token


async def test_the_file_of_init_says_nothing_but_the_defaults(tmp_path):
    """A commented file: with it and without it the settings are the same."""
    home = tmp_path / "home"
    without = await command("--home", str(home), "config", "show")
    await command("--home", str(home), "init", "--yes")
    assert await command("--home", str(home), "config", "show") == without


async def test_init_never_overwrites(tmp_path):
    home = tmp_path / "home"
    await command("--home", str(home), "init", "--yes")
    (home / "pegasus.toml").write_text("[agent]\nmax_thoughts = 3\n")
    token = (home / "token").read_text()
    assert (await command("--home", str(home), "init", "--yes")).code == 0
    for typed in (b"n\n", b"y\n", b""):
        assert (await command("--home", str(home), "init", stdin=typed)).code == 0
    assert (home / "pegasus.toml").read_text() == "[agent]\nmax_thoughts = 3\n"
    assert (home / "token").read_text() == token


async def test_init_asks_nothing_at_the_end_of_input(tmp_path):
    home = tmp_path / "home"
    await command("--home", str(home), "init", "--yes")
    (home / "pegasus.toml").write_text("[agent]\nmax_thoughts = 3\n")
    result = await command("--home", str(home), "init", stdin=b"")
    assert "Traceback" not in result.err
    assert (home / "pegasus.toml").read_text() == "[agent]\nmax_thoughts = 3\n"


# ------------------------------------------------------------------ pegasus without a command


async def test_without_a_terminal_it_is_the_daemon(tmp_path):
    daemon = Daemon(tmp_path / "home", STAND_IN)
    daemon.configure()
    async with trio.open_nursery() as nursery:
        process = await nursery.start(_background, [*PROGRAM, "--home", str(daemon.home)], environment(), b"no chat\n")
        seen = b""
        with trio.fail_after(15):
            async for chunk in process.stdout:
                seen += chunk
                if seen.endswith(b"\n"):
                    break
        assert seen.startswith(b"pegasus ready ws=")
        assert seen.count(b"\n") == 1
        process.terminate()
        with trio.fail_after(10):
            assert await process.wait() == 0


async def _background(arguments, env, stdin=b"", *, task_status):
    await trio.run_process(
        arguments,
        stdin=stdin,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        task_status=task_status,
    )
