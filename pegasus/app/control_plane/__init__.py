"""The control plane: the methods that programs may call, over the gateway and over HTTP.

`pegasus status` and most other commands of the command line, the web page and the routes below `/api` call them. A client sends a
call frame with a method's name, which the gateway looks up in the table that the daemon has made of all `methods()`. It passes the
caller and the frame's params to the method, and sends what it returns (JSON) as the frame of the result. A method raises `BadParams`
for params that it does not take, which becomes an error frame; the message says what was found and what is allowed.

A method has no state of its own: it checks the params and asks the actor that knows, so a restart of that actor changes nothing here.
Each class writes its names out one by one, as together they are the list of what a client with the token may do.

The daemon makes the table, and imports these files, behind the ready line or when the first method is called.

Read the files in this order; each uses only those before it:

    scopes      which methods only show something
    access      who may come in: tokens, people who are not known yet, browsers
    knowledge   memory and the persona
    views       what a person may look at beside the work itself
    histories   conversations as people see them: list, messages, going back
    work        tasks, events, the work of one conversation, scheduled jobs
    stopping    the answer that is being made for one conversation, which people end without ending anything else
    status      the daemon as a whole
    nodes       the nodes that share a database
    servers     kinds of tools of MCP servers
    clients     tools that clients carry out
    settings    what is in force, and changing a key of the file
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.app.control_plane.scopes import MESSAGE_METHODS, READ_METHODS
from pegasus.late import late_names

if TYPE_CHECKING:
    from pegasus.app.control_plane.access import PairingMethods, SignInMethod, TokenMethods
    from pegasus.app.control_plane.clients import ClientToolMethods
    from pegasus.app.control_plane.histories import HistoryMethods
    from pegasus.app.control_plane.knowledge import MemoryMethods, PersonaMethods
    from pegasus.app.control_plane.nodes import NodeMethods
    from pegasus.app.control_plane.servers import ServerMethods
    from pegasus.app.control_plane.settings import SettingsMethods
    from pegasus.app.control_plane.status import StatusMethods, actor_json
    from pegasus.app.control_plane.stopping import InterruptMethod
    from pegasus.app.control_plane.views import CompletionMethod, ViewMethods
    from pegasus.app.control_plane.work import ConversationMethod, CronMethods, EventMethods, TaskMethods
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "MESSAGE_METHODS",
    "READ_METHODS",
    "ClientToolMethods",
    "CompletionMethod",
    "ConversationMethod",
    "CronMethods",
    "EventMethods",
    "HistoryMethods",
    "InterruptMethod",
    "MemoryMethods",
    "NodeMethods",
    "PairingMethods",
    "PersonaMethods",
    "ServerMethods",
    "SettingsMethods",
    "SignInMethod",
    "StatusMethods",
    "TaskMethods",
    "TokenMethods",
    "ViewMethods",
    "actor_json",
]
