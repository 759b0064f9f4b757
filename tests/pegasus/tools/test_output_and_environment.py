"""The part of a command's output that is kept, and the environment that it gets."""

from hypothesis import given
from hypothesis import strategies as st

from pegasus.redaction import secrets_in_environment
from pegasus.sandbox.process import HeadAndTail
from pegasus.tools.command_variables import command_environment


def captured(limit, *parts):
    capture = HeadAndTail(limit)
    for part in parts:
        capture.add(part)
    return capture


@given(st.lists(st.binary(max_size=50)), st.integers(0, 60))
def test_head_and_tail_are_those_of_the_whole(parts, limit):
    whole = b"".join(parts)
    capture = captured(limit, *parts)
    half = limit // 2
    if len(whole) <= 2 * half:
        assert not capture.truncated
        assert capture.text() == whole.decode("utf-8", "replace")
    else:
        assert capture.truncated
        assert capture.dropped == len(whole) - 2 * half
    assert capture.total == len(whole)


@given(st.text(min_size=200, max_size=300), st.integers(2, 100))
def test_no_character_is_cut_in_two(text, limit):
    capture = captured(limit, text.encode())
    assert "\ufffd" not in capture.text().replace("\ufffd" if "\ufffd" in text else "", "")


def test_the_line_between_says_how_much_is_missing():
    assert captured(10, b"a" * 1000, b"b" * 1000, b"c" * 1000).text() == "aaaaa\n… 2,990 bytes left out …\nccccc"


def test_memory_stays_small():
    capture = captured(1000, *[b"x" * 65536] * 1000)
    assert len(capture._head) + len(capture._tail) <= 3000


def test_an_environment_without_secrets():
    daemon = {
        "PATH": "/bin",
        "HOME": "/home/ann",
        "LC_ALL": "C.UTF-8",
        "ANTHROPIC_API_KEY": "s",
        "PEGASUS__GATEWAY__TOKEN": "s",
        "PEGASUS_HOME": "s",
        "GITHUB_TOKEN": "s",
        "AWS_SECRET_ACCESS_KEY": "s",
        "SSH_AUTH_SOCK": "s",
        "HTTPS_PROXY": "http://ann:s@proxy",
        "DATABASE_URL": "s",
        "NOTIFY_SOCKET": "s",
        "PYTHONPATH": "s",
        "LD_PRELOAD": "s",
    }
    env = command_environment(daemon, {})
    assert "s" not in env.values()
    assert {"PATH", "HOME", "LC_ALL"} <= env.keys()
    assert not [name for name in env if name.startswith("PEGASUS")]


def test_what_the_call_asks_for_wins():
    env = command_environment({"PATH": "/bin", "LANG": "C"}, {"PATH": "/opt/bin", "TOKEN": "mine"})
    assert (env["PATH"], env["TOKEN"], env["LANG"]) == ("/opt/bin", "mine", "C")


def test_there_is_always_a_path():
    assert command_environment({}, {})["PATH"]


def test_values_of_variables_that_are_named_like_secrets():
    environ = {"OPENAI_API_KEY": "k-1", "PEGASUS__GATEWAY__TOKEN": "t-1", "db_password": "p-1", "EMPTY_KEY": ""}
    assert set(secrets_in_environment({**environ, "PATH": "/bin", "KEYBOARD": "us"})) == {"k-1", "t-1", "p-1"}
