"""What the black-box tests are written in: a daemon to start and kill, a client to talk with, a model that follows a book.

daemon.py · command.py · serving.py · peer.py · talker.py · model.py · terminal.py · files.py · ports.py · waiting.py
"""

from pegasus.testing.provider.answers import Call, cut, failing, page, refuse, reset
from tests.blackbox.support.command import Result, command, environment
from tests.blackbox.support.daemon import Daemon, Exited, Ready, running
from tests.blackbox.support.files import open_calls, session, write_session
from tests.blackbox.support.model import HANG, SILENCE, Book, Thought, View, echo, reply, say
from tests.blackbox.support.peer import Closed, Peer, connect
from tests.blackbox.support.serving import Stage, serving, thinks_with
from tests.blackbox.support.waiting import until

__all__ = [
    "HANG",
    "SILENCE",
    "Book",
    "Call",
    "Closed",
    "Daemon",
    "Exited",
    "Peer",
    "Ready",
    "Result",
    "Stage",
    "Thought",
    "View",
    "command",
    "connect",
    "cut",
    "echo",
    "environment",
    "failing",
    "open_calls",
    "page",
    "refuse",
    "reply",
    "reset",
    "running",
    "say",
    "serving",
    "session",
    "thinks_with",
    "until",
    "write_session",
]
