"""The terminal chat: a client of the gateway for people, and for pipes.

`terminal` is it as an actor beside the daemon; `pegasus.terminal.chat` serves `pegasus chat`. prompt_toolkit,
rich and asyncio are imported only when a person's terminal is really opened.
"""

from pegasus.terminal.actor import terminal

__all__ = ["terminal"]
