"""Pictures for README and quick start, drawn from the running program with the built-in stand-in model.

`conversation.svg` is the screen of a terminal (tmux) in which `pegasus` was started and typed into. `tree.svg` is what
`pegasus tree --json` says about the same daemon. `first-chat.svg`, `streaming.svg` and `tasks.svg` show parts of a session: the
greeting with the first reply, a reply while it is being written beside a running task, and `/tasks`. They load nothing from
elsewhere, and look right on a light and on a dark page.
"""

from __future__ import annotations

import html
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "pictures"
COLUMNS, ROWS = 96, 30
PATIENCE = 30.0
"""Seconds until something must appear on the screen."""
FONT = "ui-monospace, 'SF Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"

_PALETTE = (
    "484f58 ff7b72 7ee787 e3b341 79c0ff d2a8ff 56d3e0 c8cfd6",
    "6e7681 ffa69e a5f0aa f0d278 a5d6ff e2c5ff 78e6f0 ffffff",
)
"""The eight normal and the eight bright colours of the terminal."""


def _colours(row: str) -> list[tuple[int, int, int]]:
    return [(int(colour[:2], 16), int(colour[2:4], 16), int(colour[4:], 16)) for colour in row.split()]


THEME = TerminalTheme((22, 27, 34), (230, 237, 243), *map(_colours, _PALETTE))

CONVERSATION = (
    ("Hello! What is today's date?", "20"),
    ("run uname -s", "Linux"),
    ("/status", "Up for"),
)
"""Messages, and what must be on the screen before the next one is typed."""


# ------------------------------------------------------------------ the screen


@attrs.frozen
class Screen:
    """A terminal in a tmux server of its own."""

    socket: str
    columns: int = COLUMNS
    rows: int = ROWS

    def tmux(self, *arguments: str) -> str:
        """Run a tmux command and return what it prints."""
        command = ["tmux", "-L", self.socket, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def start(self, command: Sequence[str]) -> None:
        """Open the terminal and run a command in it."""
        size = ("-x", str(self.columns), "-y", str(self.rows))
        self.tmux("-f", "/dev/null", "new-session", "-d", *size, shlex.join(command))
        self.tmux("set-option", "-g", "status", "off")

    def end(self) -> None:
        """Close the terminal."""
        subprocess.run(["tmux", "-L", self.socket, "kill-server"], check=False, capture_output=True)

    def type(self, text: str) -> None:
        """Type a line."""
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def keys(self, *keys: str) -> None:
        """Press keys, by their names in tmux."""
        for key in keys:
            self.tmux("send-keys", key)

    def text(self) -> str:
        """Return the screen without colours."""
        return self.tmux("capture-pane", "-p")

    def history(self) -> list[str]:
        """Return the lines of the screen without colours, with those that have left it, and without empty ones at the end."""
        return self.tmux("capture-pane", "-p", "-S", "-").rstrip().splitlines()

    def coloured(self) -> str:
        """Return the screen with its escape sequences."""
        return self.tmux("capture-pane", "-p", "-e")

    def wait_for(self, ready: Callable[[str], bool]) -> None:
        """Wait until the screen looks as it should. Raises SystemExit after PATIENCE seconds."""
        end = time.monotonic() + PATIENCE
        while not ready(self.text()):
            if time.monotonic() > end:
                raise SystemExit(f"the screen never looked as expected:\n{self.text()}")
            time.sleep(0.1)


def draw_screen(coloured: str, title: str, since: str = "") -> str:
    """Return the screen as an SVG that loads no fonts. since: begin with the last line that contains this text."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    lines = coloured.rstrip().splitlines()
    first = max((index for index, line in enumerate(lines) if since and since in Text.from_ansi(line).plain), default=0)
    lines = lines[first:]
    console.print(Text("\n").join(Text.from_ansi(line) for line in lines))
    svg = console.export_svg(title=title, theme=THEME)
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", FONT).replace('"Fira Code"', FONT)


# ------------------------------------------------------------------ the tree

WIDTH, HEIGHT, GAP_X, GAP_Y = 178, 40, 34, 10


@attrs.define
class Box:
    """An actor in the picture. x, y: its upper left corner."""

    name: str
    detail: str
    is_supervisor: bool
    children: list[Box]
    x: float = 0.0
    y: float = 0.0


def make_box(node: dict[str, Any]) -> Box:
    """Make the boxes of an actor and of all below it."""
    children = [make_box(child) for child in node.get("children", ())]
    name = node["path"].rpartition("/")[2] or node["path"] or "pegasus"
    detail = f"{node.get('state', '')}, {node.get('restarts', 0)} restarts"
    return Box(name, detail, bool(children), children)


def place_boxes(box: Box, depth: int, top: float) -> float:
    """Give the boxes their places; return the lower end."""
    box.x = depth * (WIDTH + GAP_X) + 20
    end = top
    for child in box.children:
        end = place_boxes(child, depth + 1, end) + GAP_Y
    end = end - GAP_Y if box.children else top + HEIGHT
    box.y = (box.children[0].y + box.children[-1].y) / 2 if box.children else top
    return end


def draw_box(box: Box, parts: list[str]) -> None:
    """Append the SVG of a box, of all below it, and of the lines between them."""
    for child in box.children:
        x1, y1, x2, y2 = box.x + WIDTH, box.y + HEIGHT / 2, child.x, child.y + HEIGHT / 2
        middle = (x1 + x2) / 2
        parts.append(f'<path class="line" d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"/>')
        draw_box(child, parts)
    kind = "supervisor" if box.is_supervisor else "worker"
    parts.append(f'<rect class="{kind}" x="{box.x}" y="{box.y}" width="{WIDTH}" height="{HEIGHT}" rx="8"/>')
    parts.append(f'<text class="name" x="{box.x + 12}" y="{box.y + 17}">{html.escape(box.name)}</text>')
    parts.append(f'<text class="detail" x="{box.x + 12}" y="{box.y + 31}">{html.escape(box.detail)}</text>')


def draw_tree(root: dict[str, Any]) -> str:
    """Return the supervision tree as an SVG."""
    box = make_box(root)
    end = place_boxes(box, 0, 20)
    parts: list[str] = []
    draw_box(box, parts)
    depth = lambda box: 1 + max(map(depth, box.children), default=0)  # noqa: E731
    width, height = depth(box) * (WIDTH + GAP_X) - GAP_X + 40, end + 20
    style = f"""
      text {{ font-family: {FONT}; }}
      .name {{ font-size: 13px; fill: #1f2328; font-weight: 600; }}
      .detail {{ font-size: 10px; fill: #59636e; }}
      .supervisor {{ fill: #ddf4ff; stroke: #54aeff; stroke-width: 1.2; }}
      .worker {{ fill: #f6f8fa; stroke: #afb8c1; stroke-width: 1.2; }}
      .line {{ fill: none; stroke: #8c959f; stroke-width: 1.2; }}
      @media (prefers-color-scheme: dark) {{
        .name {{ fill: #e6edf3; }} .detail {{ fill: #9198a1; }} .line {{ stroke: #656c76; }}
        .supervisor {{ fill: #0c2d6b; stroke: #388bfd; }} .worker {{ fill: #161b22; stroke: #3d444d; }}
      }}"""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
    return "\n".join([head, "<title>The supervision tree</title>", f"<style>{style}</style>", *parts, "</svg>\n"])


# ------------------------------------------------------------------ together


def run_pegasus(home: Path, *arguments: str) -> str:
    """Run a command of the command line and return what it prints."""
    command = [sys.executable, "-m", "pegasus", "--home", str(home), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def draw_quick_start(home: Path, screen: Screen) -> None:
    """Play the beginning of the quick start, and write its three pictures."""
    open_chat(home, screen)
    screen.type("hello")
    screen.wait_for(lambda text: "again." in text)
    time.sleep(1)
    save("first-chat", screen.coloured())
    screen.type("run sleep 20; echo finished")
    screen.wait_for(lambda text: "shell_exec" in text)
    screen.type("what can you do?")
    screen.wait_for(lambda text: "beyond my rules" in text and "shell_exec" in text)
    save("streaming", screen.coloured(), since="what can you do?")
    screen.wait_for(lambda text: "You wrote" in " ".join(text.split()))
    time.sleep(1)
    screen.type("/tasks")
    screen.wait_for(lambda text: text.count("sleep 20") > 2)
    time.sleep(1)
    save("tasks", screen.coloured(), since="› /tasks")
    screen.keys("C-d")
    screen.wait_for(lambda text: "Still running" in text)
    screen.keys("s")
    time.sleep(3)


def save(name: str, coloured: str, since: str = "") -> None:
    """Write a picture of the screen."""
    (TARGET / f"{name}.svg").write_text(draw_screen(coloured, "pegasus", since))


def open_chat(home: Path, screen: Screen) -> None:
    """Start the agent in a new home, with a chat."""
    home.mkdir(mode=0o700)
    (home / "pegasus.toml").write_text("[gateway]\nport = 0\n[http]\nport = 0\n")
    (home / "pegasus.toml").chmod(0o600)
    without = [word for name in os.environ if name.endswith("_API_KEY") for word in ("-u", name)]
    program = "PEGASUS_PROGRAM=./scripts/run"
    screen.start(["env", "-C", str(ROOT), *without, program, sys.executable, "-m", "pegasus", "--home", str(home)])
    screen.wait_for(lambda text: ">" in text or "›" in text)
    time.sleep(1)


def main(arguments: Sequence[str]) -> None:
    """Play both sessions, and write the pictures."""
    if arguments:
        raise SystemExit(__doc__)
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        screen = Screen(f"pegasus-pictures-{os.getpid()}")
        try:
            draw_quick_start(Path(folder) / "home", screen)
        finally:
            screen.end()
    screen = Screen(f"pegasus-pictures-{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        try:
            open_chat(home, screen)
            for message, answer in CONVERSATION:
                before = screen.text().count(answer)
                screen.type(message)
                screen.wait_for(lambda text, before=before, answer=answer: text.count(answer) > before)
                time.sleep(1.5)
            save("conversation", screen.coloured())
            tree = json.loads(run_pegasus(home, "tree", "--json"))
            (TARGET / "tree.svg").write_text(draw_tree(tree))
            screen.tmux("send-keys", "C-d")
            time.sleep(3)
        finally:
            screen.end()


if __name__ == "__main__":
    main(sys.argv[1:])
