"""The terminal chat: a client of the gateway for people, and for pipes.

`run_chat` is the whole chat; the command line wraps it in a process. `LineChat` and `TurnWatch` are the part that needs no
terminal; `pegasus send` uses `TurnWatch` to know when the agent has finished. `neutralise` makes text from strangers harmless
to print, for every command that prints any.

A chat is a process of its own, beside the daemon's: a hanging terminal cannot hold the agent up, and kill -9 of the chat
leaves the agent running. Nothing here is imported by the daemon. prompt_toolkit, rich and asyncio are imported only when
a person's terminal is really opened.

Read the files in this order; each uses only those before it:

    tty              harmless text, modes of the terminal, stderr above the prompt
    questions        letters that answer questions about tool calls
    status_line      values of what is shown of the agent's work, and the text of the line under the prompt
    leaving          the question about work that is running, when somebody leaves
    greeting         values that a chat begins with, and the first lines that it shows
    prompt_rules     meaning of keys, as pure functions, and what comes of them for the chat
    stop_keys        effects of Ctrl-C and Esc on the agent's work
    completion       what may follow the typed text
    history          file of the typed messages
    turn_watch       the end of a message's turn
    line_chat        the chat of a pipe
    attachments      files that a message mentions
    typed_messages   messages on their way from the prompt to the agent, and those without an answer
    copying          answers for the clipboard
    markdown         layout of replies, by rich
    pasted           long pasted texts, folded on the prompt
    live_region      a reply while it is being written
    prompt           parts of the prompt, of prompt_toolkit
    screen           the screen: prompt and output, on asyncio's side
    interactive      the chat of a person, on Trio's side
    chat             entry: which of the two chats it is, and what is said at its end
"""

from pegasus.terminal.attachments import AttachmentProblem, read_files
from pegasus.terminal.chat import has_screen, run_chat
from pegasus.terminal.greeting import ChatConfig
from pegasus.terminal.leaving import Leave, LeaveRules
from pegasus.terminal.line_chat import DaemonGone, LineChat, frame_bytes
from pegasus.terminal.tty import is_utf8, neutralise, repair_unicode, restore_terminal
from pegasus.terminal.turn_watch import TurnWatch

__all__ = [
    "AttachmentProblem",
    "ChatConfig",
    "DaemonGone",
    "Leave",
    "LeaveRules",
    "LineChat",
    "TurnWatch",
    "frame_bytes",
    "has_screen",
    "is_utf8",
    "neutralise",
    "read_files",
    "repair_unicode",
    "restore_terminal",
    "run_chat",
]
