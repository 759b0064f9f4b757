"""What becomes of a log entry."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import warnings

import pytest

from pegasus.observe import configure_logging, get_logger, stop_logging
from pegasus.observe.log import BUFFER

LOG = get_logger("gateway")


def configure(file, **options):
    configure_logging(file, **{"clock": lambda: 1772029800.123, **options})


def lines(file) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_an_entry_is_one_line_in_the_file_and_on_stderr_and_nothing_on_stdout(file, capfd):
    configure(file)
    LOG.info("client connected", peer="127.0.0.1", n=3)
    stop_logging()
    line = "2026-02-25T14:30:00.123Z info    gateway: client connected peer=127.0.0.1 n=3"
    assert lines(file) == [line]
    assert capfd.readouterr() == ("", line + "\n")


def test_json(file):
    configure(file, format="json")
    LOG.warning("odd", n=3, ok=True, nothing=None, text='a "b"', other=[1])
    stop_logging()
    assert json.loads(lines(file)[0]) == {
        "ts": "2026-02-25T14:30:00.123Z",
        "level": "warning",
        "logger": "gateway",
        "event": "odd",
        "n": 3,
        "ok": True,
        "nothing": None,
        "text": 'a "b"',
        "other": "[1]",
    }


def test_nothing_is_written_before_the_configuration_and_then_everything_in_order(file):
    LOG.info("first")
    assert lines(file) == []
    configure(file)
    LOG.info("second")
    assert [line.split(": ")[1] for line in lines(file)] == ["first", "second"]


def test_entries_from_before_the_configuration_are_kept(file):
    LOG.info("early")
    configure(file)
    stop_logging()
    assert lines(file)[0].endswith("early")


def test_the_buffer_is_bounded_and_says_what_it_lost(file):
    for n in range(BUFFER + 7):
        LOG.info(str(n))
    configure(file)
    stop_logging()
    assert len(lines(file)) == BUFFER + 1
    assert lines(file)[-1].endswith("entries lost before logging started count=7")


def test_what_waits_in_the_buffer_does_not_change_any_more(file):
    value = [1]
    LOG.info("x", value=value)
    value.append(2)
    configure(file)
    stop_logging()
    assert "value=[1]" in lines(file)[0]


def test_a_process_that_ends_without_configuration_writes_nothing(capfd):
    LOG.error("lost")
    assert stop_logging() is False
    assert capfd.readouterr() == ("", "")


async def test_only_the_level_and_above_is_written(file):
    LOG.debug("early debug")
    configure(file, level="warning")
    for method in (LOG.debug, LOG.info, LOG.warning, LOG.error):
        method(method.__name__)
    assert [line.split(": ")[1] for line in lines(file)] == ["warning", "error"]


async def test_a_change_while_logging_takes_effect_at_once(file):
    configure(file)
    LOG.debug("not shown")
    configure(file, level="debug", format="json")
    LOG.debug("shown")
    assert [json.loads(line)["event"] for line in lines(file)] == ["shown"]


def test_an_exception_comes_with_its_traceback(file):
    configure(file)
    try:
        raise ValueError("broken\x1b[2J")
    except ValueError as error:
        LOG.exception("crashed", error=error, actor="x")
    stop_logging()
    assert lines(file)[0].endswith("error   gateway: crashed actor=x")
    assert lines(file)[1] == "  | Traceback (most recent call last):"
    assert lines(file)[-1] == "  | ValueError: broken\\x1b[2J"


def test_an_exception_in_json_stays_one_line(file):
    configure(file, format="json")
    LOG.exception("crashed", error=ValueError("broken"))
    stop_logging()
    assert json.loads(lines(file)[0])["exception"] == "ValueError: broken\n"


@pytest.mark.parametrize("format", ["line", "json"])
@pytest.mark.parametrize("text", ["two\nlines", "\x1b[31mred", "\r", "\u2028", "\ud800", "\x00"])
def test_what_came_from_outside_cannot_forge_lines_or_move_the_cursor(file, format, text):
    configure(file, format=format)
    LOG.info(text, field=text)
    stop_logging()
    (line,) = file.read_bytes().decode().split("\n")[:-1]
    assert "\x1b" not in line
    assert "\r" not in line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("a b", '"a b"'),
        ('a"b', '"a\\"b"'),
        ("a=b", '"a=b"'),
        ("ü", "ü"),
        (1.5, "1.5"),
        (None, "None"),
    ],
)
def test_how_values_look_in_a_line(file, value, shown):
    configure(file)
    LOG.info("x", value=value)
    stop_logging()
    assert lines(file)[0].endswith(f": x value={shown}")


@pytest.mark.parametrize("name", ["event", "level", "logger", "at", "ts", "exception", "self", "method_name"])
@pytest.mark.parametrize("format", ["line", "json"])
def test_a_field_may_have_any_name(file, name, format):
    configure(file, format=format)
    LOG.info("x", **{name: "mine"})
    stop_logging()
    assert "mine" in lines(file)[0]
    assert "info" in lines(file)[0]


async def test_a_value_that_cannot_be_shown_does_no_harm(file):
    class Bad:
        def __repr__(self):
            raise RuntimeError

    configure(file)
    LOG.info("before", bad=Bad())
    LOG.info("after", bad=Bad())
    assert len(lines(file)) == 2


# ------------------------------------------------------------------ secrets

SECRET = 'sk-"quoted\\secret'


@pytest.mark.parametrize("format", ["line", "json"])
def test_secrets_are_masked_wherever_they_stand(file, format, capfd):
    configure(file, format=format, secrets=[SECRET, "t0ken-longer", "t0ken"])
    LOG.info(f"key {SECRET}", text=f"Bearer {SECRET}", nested={"h": ["t0ken-longer"]}, url="ws://h/?t=t0ken&x=1")
    LOG.exception("failed", error=ValueError(f"401 for {SECRET}"))
    stop_logging()
    for output in (file.read_text(), capfd.readouterr().err):
        assert "***" in output
        assert "secret" not in output
        assert "t0ken" not in output
        assert "-longer" not in output


@pytest.mark.parametrize("form", ["a%26b%2Fc%20d", "YSZiL2MgZA"])
def test_a_secret_is_masked_in_addresses_and_in_base64_too(file, form):
    configure(file, secrets=["a&b/c d"])
    LOG.info("request", url=f"https://host/?key={form}")
    assert form not in file.read_text()
    assert "***" in file.read_text()


def test_an_empty_or_tiny_secret_does_not_take_words_apart(file):
    configure(file, secrets=["", "a"])
    LOG.info("banana")
    stop_logging()
    assert lines(file)[0].endswith("banana")


# ------------------------------------------------------------------ others that log


async def test_libraries_join_in_from_warning_upward(file):
    configure(file, secrets=["t0ken"])
    logging.getLogger("trio-websocket").warning("odd frame %s", "t0ken")
    logging.getLogger("trio-websocket").info("not shown")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old thing", stacklevel=1)
    stop_logging()
    assert lines(file)[0].endswith("warning trio-websocket: odd frame ***")
    assert "py.warnings: " in lines(file)[1]
    assert "old thing" in lines(file)[1]
    assert len(lines(file)) == 2


async def test_with_level_debug_libraries_join_in_from_info_upward(file):
    configure(file, level="debug")
    logging.getLogger("httpx").info("GET")
    logging.getLogger("httpcore").debug("not shown")
    assert [line.split(" ", 2)[2].strip() for line in lines(file)] == ["httpx: GET"]


async def test_logging_leaves_the_process_as_it_was(file):
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    configure(file)
    stop_logging()
    assert (root.handlers, root.level) == before


async def test_threads_may_log(file):
    configure(file)
    threads = [threading.Thread(target=lambda: [LOG.info("x") for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(file)) == 400
    assert all(line.endswith(": x") for line in lines(file))


# ------------------------------------------------------------------ the process

HELLO = """
import sys
from pathlib import Path
from pegasus.observe import configure_logging, get_logger, stop_logging
configure_logging(Path(sys.argv[1]))
get_logger("x").info("hello")
stop_logging()
"""


def test_where_stderr_is_the_log_file_each_entry_is_written_once(file):
    """A chat that starts a daemon gives it the log as stderr."""
    with file.open("ab") as stderr:
        subprocess.run([sys.executable, "-c", HELLO, str(file)], stderr=stderr, timeout=20, check=True)
    (line,) = lines(file)
    assert line.endswith("x: hello")


def test_a_redirected_stderr_gets_them_also_then(file):
    done = subprocess.run(
        [sys.executable, "-c", HELLO, str(file)], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stderr.endswith("x: hello\n")
