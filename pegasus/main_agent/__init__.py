"""The Main Agent: one private voice that takes queue items in order, thinks, and speaks only through tools.

Queue and think loop, session (log, repair, projection), commands, and the tools that only it has.
"""

from pegasus.intake import CONTROL_COMMANDS, command_of
from pegasus.main_agent.actor import main_agent
from pegasus.main_agent.messages import AgentStatus, Ended, GetStatus, MainAgentMessage, Stop
from pegasus.main_agent.mind import Faculties, Habits, Mind
from pegasus.main_agent.publishing import publisher
from pegasus.main_agent.speaking import REPLY

__all__ = [
    "CONTROL_COMMANDS",
    "REPLY",
    "AgentStatus",
    "Ended",
    "Faculties",
    "GetStatus",
    "Habits",
    "MainAgentMessage",
    "Mind",
    "Stop",
    "command_of",
    "main_agent",
    "publisher",
]
