"""The agent of an editor: the Agent Client Protocol on stdin and stdout (`pegasus acp`).

It is a program of its own, a client of the gateway: each session of the editor is a conversation with the agent that runs anyway. So
an editor that dies ends nothing, and what it has missed is there when it comes back. The daemon imports nothing of it.

Read the files in this order; each uses only those before it:

    link          JSON-RPC in both directions
    requests      the parameters of what editors ask
    content       prompts and files
    shown_text    replies that appear while they are written
    work          background tasks: plan, tool calls, differences
    permissions   approvals
    editor_tools  files and terminals of the editor
    session       one session
    agent         the methods that an editor calls, and the entry: an editor on stdin and stdout
"""

from pegasus.acp.agent import serve_editor

__all__ = ["serve_editor"]
