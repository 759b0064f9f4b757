"""The terminal chat: a client of the gateway for people, and for pipes.

`run_chat` is the whole chat; the command line wraps it in a process. `LineChat` and `Turn` are the part that needs no
terminal; `pegasus send` uses `Turn` to know when the agent has finished. `neutralise` makes text from strangers harmless
to print, for every command that prints any.

A chat is a process of its own, beside the daemon's: a hanging terminal cannot hold the agent up, and kill -9 of the chat
leaves the agent running. Nothing here is imported by the daemon. prompt_toolkit, rich and asyncio are imported only when
a person's terminal is really opened.

Read the files in this order; each uses only those before it:

    tty           harmless text, modes of the terminal, stderr above the prompt
    prompt_rules  meaning of keys and /commands, text of the status line, as pure functions
    line_chat     the chat of a pipe
    markdown      layout of replies, by rich
    prompt        parts of the prompt, of prompt_toolkit
    screen        the screen: prompt and output, on asyncio's side
    chat          which of the two chats it is, and the chat of a person, on Trio's side
"""

from pegasus.terminal.chat import ChatConfig, run_chat
from pegasus.terminal.line_chat import DaemonGone, LineChat, Turn
from pegasus.terminal.tty import neutralise, restore_terminal

__all__ = [
    "ChatConfig",
    "DaemonGone",
    "LineChat",
    "Turn",
    "neutralise",
    "restore_terminal",
    "run_chat",
]
