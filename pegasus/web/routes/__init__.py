"""Routes of the HTTP server, by subject. Each file has its handlers, and a function that returns its operations.

Read the files in this order; each uses only those before it:

    pages          the page, signing in, health
    conversations  a message, the end of its turn, and the replies
    messages       messages and replies
    events         events of the agent as they happen
    client_chats   which conversation a request of an OpenAI client is about
    client_turns   a turn for such a client
    openai         the API of OpenAI's chat, as far as front ends use it
    responses      the API of OpenAI's responses
    embeddings     texts as vectors
    audio          recordings as text, and text as speech
    prometheus     numbers for Prometheus as text
    control        the control plane's methods, and metrics made of their answers
    webhooks       webhooks of any service, and those of chat services
"""

from __future__ import annotations

from pegasus.web.routes.audio import audio_operations
from pegasus.web.routes.client_turns import IDEMPOTENCY, ClientTurns
from pegasus.web.routes.control import control_operations, openapi_operation
from pegasus.web.routes.conversations import Conversations, TurnTranscript, new_message_id
from pegasus.web.routes.embeddings import embedding_operations
from pegasus.web.routes.events import EventFeed, event_operations, gather_events
from pegasus.web.routes.messages import LONGEST_WAIT, message_of, message_operations
from pegasus.web.routes.openai import completion_operations
from pegasus.web.routes.pages import load_static_files, page_operations
from pegasus.web.routes.responses import response_operations
from pegasus.web.routes.webhooks import webhook_operations

__all__ = [
    "IDEMPOTENCY",
    "LONGEST_WAIT",
    "ClientTurns",
    "Conversations",
    "EventFeed",
    "TurnTranscript",
    "audio_operations",
    "completion_operations",
    "control_operations",
    "embedding_operations",
    "event_operations",
    "gather_events",
    "load_static_files",
    "message_of",
    "message_operations",
    "new_message_id",
    "openapi_operation",
    "page_operations",
    "response_operations",
    "webhook_operations",
]
