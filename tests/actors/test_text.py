"""The tree and the events as text, word for word."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console
from rich.panel import Panel

from actors import ActorInfo, Backoff, Child, Inbox, Mailbox, Overflow, open_supervisor, supervisor
from actors.text import TreeView, cells, render
from tests.actors.kit import Add, Crash, Work, counter, never_reads, settle


async def stubborn(inbox: Inbox[Any]) -> None:
    async for _ in inbox:
        pass
    with trio.CancelScope(shield=True):
        await trio.sleep(60)


STUBBORN_AT = f"{stubborn.__code__.co_filename}:{stubborn.__code__.co_firstlineno + 4} in stubborn"


def info(name: str, *children: ActorInfo, **fields: Any) -> ActorInfo:
    return ActorInfo(name, name, children=children, **{"state": "up", **fields})


def mailbox(name: str, **fields: Any) -> ActorInfo:
    return info(name, **{"capacity": 64, **fields})


SHOP = info(
    "shop",
    mailbox("till", depth=64, high_water=64, sent=1301, handled=1234, dropped=3),
    info(
        "kitchen",
        mailbox(
            "cook",
            depth=3,
            high_water=9,
            handled=17,
            message="Dish",
            message_age=12.34,
            deadline=47.7,
            waiting_at="/srv/shop/kitchen/recipes/cook.py:214 in Cook.fry",
        ),
        mailbox("waiter", state="waiting", restarts=2, dead=1, due=1.5),
    ),
    info("pool"),
    shutdown_budget=23.0,
)


def text(root: ActorInfo, width: float = 80) -> list[str]:
    return str(TreeView(root, width)).split("\n")


def test_a_line_for_each_actor_and_what_does_not_fit_below_it() -> None:
    assert text(SHOP) == [
        "ACTOR         STATE    MAILBOX  MOST  HANDLED  DROPPED  DEAD  RESTARTS",
        "shop          up",
        "│  stops within 23 s",
        "├─ till       up         64/64    64    1,234        3",
        "├─ kitchen    up",
        "│  ├─ cook    up          3/64     9       17",
        "│  │     Dish for 12 s, answer due in 48 s",
        "│  │     at /srv/shop/kitchen/recipes/cook.py:214 in Cook.fry",
        "│  └─ waiter  waiting     0/64     0        0              1         2",
        "│        back in 1.5 s",
        "└─ pool       up",
    ]


def test_with_room_enough_it_is_one_line_each() -> None:
    at = "at /srv/shop/kitchen/recipes/cook.py:214 in Cook.fry"
    assert text(SHOP, math.inf) == [
        "ACTOR         STATE    MAILBOX  MOST  HANDLED  DROPPED  DEAD  RESTARTS",
        "shop          up                                                        stops within 23 s",
        "├─ till       up         64/64    64    1,234        3",
        "├─ kitchen    up",
        f"│  ├─ cook    up          3/64     9       17                           Dish for 12 s, answer due in 48 s, {at}",
        "│  └─ waiter  waiting     0/64     0        0              1         2  back in 1.5 s",
        "└─ pool       up",
    ]


def test_without_room_numbers_are_left_out_and_folders_and_words_cut() -> None:
    assert text(SHOP, 34) == [
        "ACTOR         STATE    MAILBOX",
        "shop          up",
        "│  stops within 23 s",
        "├─ till       up         64/64",
        "├─ kitchen    up",
        "│  ├─ cook    up          3/64",
        "│  │     Dish for 12 s",
        "│  │     answer due in 48 s",
        "│  │     at …/cook.py:214 in Cook…",
        "│  └─ waiter  waiting     0/64",
        "│        back in 1.5 s",
        "└─ pool       up",
    ]
    assert text(SHOP, 50)[7] == "│  │     at …/recipes/cook.py:214 in Cook.fry"
    assert text(SHOP, 18)[4:6] == ["├─ kitch…  up", "│  ├─ co…  up"]


def test_a_number_that_is_nowhere_has_no_column() -> None:
    assert text(info("root", info("pool"))) == ["ACTOR    STATE", "root     up", "└─ pool  up"]
    assert text(info("root", mailbox("a"))) == [
        "ACTOR  STATE  MAILBOX  MOST  HANDLED",
        "root   up",
        "└─ a   up        0/64     0        0",
    ]


def test_a_long_name_is_cut_before_numbers_are_left_out() -> None:
    lines = text(info("root", mailbox("a-name-that-does-not-end-" * 4, dead=1)))
    assert lines[0] == f"{'ACTOR':<43}  STATE  MAILBOX  MOST  HANDLED  DEAD"
    assert lines[2] == f"{'└─ a-name-that-does-not-end-a-name-that-do…'}  up        0/64     0        0     1"


def test_columns_line_up_whatever_the_script() -> None:
    lines = text(info("日本", mailbox("naïve"), mailbox("naïve"), mailbox("🎭")))
    assert lines == [
        "ACTOR     STATE  MAILBOX  MOST  HANDLED",
        "日本      up",
        "├─ naïve  up        0/64     0        0",
        "├─ naïve  up        0/64     0        0",
        "└─ 🎭     up        0/64     0        0",
    ]


def test_a_name_gives_no_orders_to_the_terminal() -> None:
    evil = "[red]a\x1b[31m\nb\u202e"
    assert text(info(evil))[1] == r"[red]a\x1b[31m b\u202e  up"
    assert r"[red]a\x1b[31m b\u202e  up" in in_rich(TreeView(info(evil)))


@given(
    some.recursive(
        some.builds(
            ActorInfo,
            name=some.text(min_size=1, max_size=30),
            path=some.just(""),
            state=some.sampled_from(["up", "stuck", "waiting", "down"]),
            depth=some.integers(0, 10**6),
            capacity=some.integers(0, 10**6),
            dead=some.integers(0, 10**9),
            message=some.none() | some.text(min_size=1, max_size=40),
            deadline=some.none() | some.floats(0, 10**9),
            waiting_at=some.none() | some.text(max_size=100),
        ),
        lambda children: some.builds(info, some.text(min_size=1, max_size=9), children, children),
        max_leaves=5,
    ),
    some.integers(1, 100),
)
def test_no_line_is_wider_than_the_terminal(root: ActorInfo, width: int) -> None:
    lines = text(root, width)
    assert all(cells(line) <= width for line in lines)
    assert all(line == line.rstrip() for line in lines)


# ------------------------------------------------------------ real trees


async def test_a_tree_that_has_seen_something() -> None:
    below = supervisor([Child("sms", counter, backoff=Backoff(4, 4, jitter=0)), Child("mute", never_reads)])
    desk = Child("desk", counter, mailbox=Mailbox(2, Overflow.DROP_OLDEST))
    async with open_supervisor([desk, Child("channels", below)], name="shop") as root, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: root.ref("desk").ask(Work, 30.0, timeout=20))
        await settle()
        for n in range(4):
            await root.ref("desk").tell(Add(n))
        await root.ref("channels/sms").tell(Crash())
        await trio.sleep(0.5)
        assert text(root.tree()) == [
            "ACTOR        STATE    MAILBOX  MOST  HANDLED  DROPPED  DEAD",
            "shop         up                                              stops within 18 s",
            "├─ desk      up           2/2     2        1        2        Work for 0.5 s",
            "│     answer due in 20 s",
            "└─ channels  up",
            "   ├─ sms    waiting     0/64     1        0              1  back in 3.5 s",
            "   └─ mute   up          0/64     0        0",
        ]
        await trio.sleep(4)
        assert text(root.tree())[-2:] == [
            "   ├─ sms    up        0/64     1        0              1         1",
            "   └─ mute   up        0/64     0        0",
        ]
        nursery.cancel_scope.cancel()
    assert [line.split()[:2] for line in text(root.tree())[1:3]] == [["shop", "down"], ["├─", "desk"]]


async def test_an_actor_that_is_waited_for() -> None:
    async with open_supervisor([Child("stubborn", stubborn, shutdown=5)], name="root") as root:
        await settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(root.stop_child, "stubborn")
            await trio.sleep(2)
            assert text(root.tree(), math.inf)[2].endswith(f"  cancelled in 3.0 s, at {STUBBORN_AT}")
            await trio.sleep(3.5)
            assert text(root.tree(), math.inf)[2].endswith(f"  at {STUBBORN_AT}")
            await trio.sleep(1)
            assert text(root.tree(), math.inf) == [
                "ACTOR        STATE  MAILBOX  MOST  HANDLED",
                "root         up                             stops within 6.0 s",
                f"└─ stubborn  stuck     0/64     0        0  at {STUBBORN_AT}",
            ]


# ------------------------------------------------------------ where it is shown


def in_rich(view: TreeView, width: int = 80, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


class Terminal(io.StringIO):
    """encoding: as of the real one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize("width", [20, 34, 80, 200])
def test_rich_shows_the_same_text(width: int) -> None:
    shown = in_rich(TreeView(SHOP), width).splitlines()
    assert [line.rstrip() for line in shown] == text(SHOP, width)


def test_rich_shows_colours_and_can_frame_it() -> None:
    shown = in_rich(TreeView(SHOP), force_terminal=True, color_system="standard")
    assert "\x1b[31m    64/64\x1b[0m" in shown
    framed = Console(file=io.StringIO(), width=60)
    with framed.capture() as capture:
        framed.print(Panel(TreeView(SHOP)))
    assert {cells(line) for line in capture.get().splitlines()} == {60}


def test_a_terminal_gets_colours_and_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert render(TreeView(SHOP), Terminal()) == in_rich(
        TreeView(SHOP), 50, force_terminal=True, color_system="256"
    ).removesuffix("\n")
    monkeypatch.setenv("NO_COLOR", "1")
    bare = render(TreeView(SHOP), Terminal())
    assert "\x1b[3" not in bare
    assert "ACTOR" in bare


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("COLUMNS", "50")
    assert render(TreeView(SHOP), Terminal()).split("\n") == text(SHOP, 50)


def test_a_file_gets_one_line_for_each_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert render(TreeView(SHOP), io.StringIO()).split("\n") == text(SHOP, math.inf)
    monkeypatch.setenv("COLUMNS", "50")
    assert render(TreeView(SHOP), io.StringIO()).split("\n") == text(SHOP, 50)


@pytest.mark.parametrize("terminal", [False, True])
def test_what_knows_no_unicode_gets_ascii(terminal: bool) -> None:
    file = io.TextIOWrapper(io.BytesIO(), "latin-1")
    monkey = attrs.evolve(SHOP, name="日本")
    file.isatty = lambda: terminal  # type: ignore[method-assign]
    shown = render(TreeView(monkey), file)
    assert shown.split("\n")[1].startswith(r"\u65e5\u672c")
    assert "`- pool       up" in shown
    assert "|  |- cook    up" in shown


def test_nothing_imports_rich_before_colours_are_shown() -> None:
    program = (
        "import sys, io; from actors import ActorInfo; from actors.text import TreeView, render;"
        "print(render(TreeView(ActorInfo('a', 'a', 'up')))); print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "ACTOR  STATE\na      up\nFalse\n"
