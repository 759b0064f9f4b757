"""The control plane: the methods that programs may call, over the gateway and over HTTP.

`pegasus status` and most other commands of the command line, the web page and the routes below `/api` call them. A method has no state
of its own: it checks the parameters, asks the actor that knows, and returns JSON.

Read the files in this order; each uses only those before it:

    access      who may come in: tokens, people who are not known yet, browsers
    knowledge   memory and the persona
    views       what a person may look at beside the work itself
    work        tasks, events, the work of one conversation, scheduled jobs
    plane       state of the daemon, and the table of the methods
"""

from pegasus.app.control_plane.access import PairingMethods, SignInMethod, TokenMethods
from pegasus.app.control_plane.knowledge import MemoryMethods, PersonaMethods
from pegasus.app.control_plane.plane import READ_METHODS, ControlPlane, actor_json
from pegasus.app.control_plane.views import CompletionMethod, ViewMethods
from pegasus.app.control_plane.work import CronMethods, EventMethods, TaskMethods

__all__ = [
    "READ_METHODS",
    "CompletionMethod",
    "ControlPlane",
    "CronMethods",
    "EventMethods",
    "MemoryMethods",
    "PairingMethods",
    "PersonaMethods",
    "SignInMethod",
    "TaskMethods",
    "TokenMethods",
    "ViewMethods",
    "actor_json",
]
