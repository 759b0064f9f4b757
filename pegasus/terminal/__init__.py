"""The terminal chat: a client of the gateway for people, and for pipes.

`run_chat` is the whole chat; the command line wraps it in a process. `LineChat` and `Turn` are the part that needs no
terminal; `pegasus send` uses `Turn` to know when the agent has finished. `neutralise` makes text from strangers harmless
to print, for every command that prints any.

A chat is a process of its own, beside the daemon's: a hanging terminal cannot hold the agent up, and kill -9 of the chat
leaves the agent running. Nothing here is imported by the daemon. prompt_toolkit, rich and asyncio are imported only when
a person's terminal is really opened.

Read the files in this order; each uses only those before it:

    neutral      removal of control characters from text of strangers
    commands     meaning of keys and /commands, as pure functions
    status       text of the status line
    tty          modes of the terminal, stderr above the prompt
    interactive  the chat of a person: conversation and screen, on Trio's side
    line_chat    the chat of a pipe
    markdown     layout of replies, by rich
    prompt       parts of the prompt, of prompt_toolkit
    screen       the screen: prompt and output, on asyncio's side
    chat         which of the two chats it is
"""

from pegasus.terminal.chat import run_chat
from pegasus.terminal.commands import SkillNames
from pegasus.terminal.interactive import ChatConfig, DaemonGone
from pegasus.terminal.line_chat import LineChat, Turn
from pegasus.terminal.neutral import neutralise
from pegasus.terminal.tty import restore_terminal

__all__ = [
    "ChatConfig",
    "DaemonGone",
    "LineChat",
    "SkillNames",
    "Turn",
    "neutralise",
    "restore_terminal",
    "run_chat",
]
