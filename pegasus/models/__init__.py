"""Language models: one call in, text and tool calls out, whichever provider it is.

`ModelService` is made from the settings and hands out a `ModelClient` for each role; everything else follows from there:

    base.py        the vocabulary: turns, request, response, errors, the `LanguageModel` protocol
    service.py     `ModelService` and its clients by role: reloads, `/model`, local servers
    setup.py       what is made from one version of the settings: the list of middleware, and the options of a role and model
    client.py      one call and its middleware; more of it in fallback.py and usage/tracker.py
    roles.py       which role is which model
    switching.py   the command `/model`
    model_facts.py what is found out about a model: its window, and its manners, which are kept on disk
    tokens.py      sizes of prompts: known, estimated, or counted exactly where the provider has a way
    catalog.py     prices and windows of known models
    chat_choices.py   models that were chosen for single chats
    errors.py      a `ModelError` for each failure, with a text for people; refusals.py: what the words of a refusal mean
    json_text.py   JSON as models write it by hand
    audio.py       speech: recordings to text and back; embeddings.py: texts as vectors; both over endpoint_model.py
    stand_in.py    fixed rules that answer where there is no model

    formats/       wire formats of the providers
    providers/     who they are, connections, calls over HTTP, servers on one's own machine
    answers/       streamed pieces; calls and reasoning that were written as text
    usage/         what calls cost, and budgets

Each folder is entered through its `__init__`. Imports go down this list of levels: switching → service → setup → fallback, usage →
client → model_facts, answers → tokens → providers → formats → errors → refusals, json_text, base.

To add a provider, see `PROVIDERS` and docs/providers.md.

A call by a task or the Main Agent looks like this. It either returns or raises ModelError, whose text can be shown to people:

    model = service.client("default")
    response = await model.generate(ModelRequest("You are …", (UserTurn(text="hello"),), label=Label("default")))
    response.text, response.calls, response.usage

Cancelling a call closes its connection; the provider may count the tokens all the same. A call keeps no state on disk except its usage
record, so a crash loses the answer, and the caller asks again with the same request.

No SDK is imported before its provider is used: importing one takes long, and a fresh installation may use none.
`pegasus.models` imports no package above storage and settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.models.base import (
    AnotherAttempt,
    AssistantTurn,
    CallBegun,
    CallPiece,
    Image,
    Label,
    LanguageModel,
    ModelError,
    ModelRequest,
    ModelResponse,
    OnPieces,
    ReasoningPiece,
    StreamPiece,
    TextPiece,
    ToolCall,
    ToolResult,
    ToolSpec,
    Turn,
    Usage,
    UserTurn,
    without_request_fences,
)
from pegasus.models.catalog import PriceList
from pegasus.models.chat_choices import ChatChoices
from pegasus.models.client import Lane, PreparedModel
from pegasus.models.formats import EXTENSIONS, MOST_PICTURES, picture_problem, picture_type
from pegasus.models.model_facts import SPEECHES, ModelTraits, TraitStore
from pegasus.models.providers import (
    ModelConfigError,
    find_providers,
    split_spec,
)
from pegasus.models.roles import OFFLINE, problems, role_spec
from pegasus.models.service import ModelClient, ModelService
from pegasus.models.switching import ModelSwitch
from pegasus.models.tokens import PromptSize, TokenCounter
from pegasus.models.usage import UsageTracker, amount_text, budget_text, format_dollars, serve_usage

if TYPE_CHECKING:
    from pegasus.models.answers import find_calls, pieces_of, without_calls_in_text
    from pegasus.models.audio import LONGEST_SPEECH, MOST_AUDIO, AudioModel
    from pegasus.models.embeddings import EmbeddingModel
    from pegasus.models.formats import read_again, unfinished
    from pegasus.models.providers import (
        ModelOffer,
        ServerWantsKey,
        find_names,
        find_offers,
        find_offers_at,
        is_known_service,
        key_variable,
    )
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "EXTENSIONS",
    "LONGEST_SPEECH",
    "MOST_AUDIO",
    "MOST_PICTURES",
    "OFFLINE",
    "SPEECHES",
    "AnotherAttempt",
    "AssistantTurn",
    "AudioModel",
    "CallBegun",
    "CallPiece",
    "ChatChoices",
    "EmbeddingModel",
    "Image",
    "Label",
    "Lane",
    "LanguageModel",
    "ModelClient",
    "ModelConfigError",
    "ModelError",
    "ModelOffer",
    "ModelRequest",
    "ModelResponse",
    "ModelService",
    "ModelSwitch",
    "ModelTraits",
    "OnPieces",
    "PreparedModel",
    "PriceList",
    "PromptSize",
    "ReasoningPiece",
    "ServerWantsKey",
    "StreamPiece",
    "TextPiece",
    "TokenCounter",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "TraitStore",
    "Turn",
    "Usage",
    "UsageTracker",
    "UserTurn",
    "amount_text",
    "budget_text",
    "find_calls",
    "find_names",
    "find_offers",
    "find_offers_at",
    "find_providers",
    "format_dollars",
    "is_known_service",
    "key_variable",
    "picture_problem",
    "picture_type",
    "pieces_of",
    "problems",
    "read_again",
    "role_spec",
    "serve_usage",
    "split_spec",
    "unfinished",
    "without_calls_in_text",
    "without_request_fences",
]
