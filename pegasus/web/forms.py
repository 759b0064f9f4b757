"""The form of each operation, for `/openapi.json`: types of its query, its body and its answers, with examples.

A test asks each route of a running agent, and holds the answer against this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.schedule import Job
from pegasus.tasks import StoppedTask, TaskView
from pegasus.web.answers import (
    ActorJson,
    AddressesAnswer,
    ApprovalsAnswer,
    ChangesAnswer,
    ChannelsAnswer,
    CompletionsAnswer,
    ConversationsAnswer,
    DecisionAnswer,
    EmbeddingsAnswer,
    FileAnswer,
    FilesAnswer,
    GoneBackAnswer,
    GrantsAnswer,
    HtmlAnswer,
    InterruptAnswer,
    JobsAnswer,
    LogAnswer,
    MessagesAnswer,
    NodesAnswer,
    PeopleAnswer,
    PersonAnswer,
    PushAnswer,
    PushJson,
    ReadyAnswer,
    ReloadAnswer,
    RevokedAnswer,
    SearchAnswer,
    ServersAnswer,
    ServerToolsAnswer,
    SessionAnswer,
    SessionsAnswer,
    SettingAnswer,
    SettingsAnswer,
    SkillsAnswer,
    SortingAnswer,
    StatusAnswer,
    TaskChangeAnswer,
    TaskLogAnswer,
    TasksAnswer,
    TranscriptionAnswer,
    UndoAnswer,
    UsageAnswer,
    WrittenAnswer,
)
from pegasus.web.bodies import (
    AliveAnswer,
    CompletionAnswer,
    DeliveryAnswer,
    EmptyAnswer,
    ModelJson,
    ModelsAnswer,
    NameJson,
    RepliesAnswer,
    ResponseAnswer,
    SentAnswer,
    SignedInAnswer,
    SignInAnswer,
    TurnAnswer,
)

STREAM: Final = "text/event-stream"
HTML: Final = "text/html"
TEXT: Final = "text/plain"
FILE: Final = "application/octet-stream"


@attrs.frozen(kw_only=True)
class Form:
    """Types of all that an operation answers."""

    answer: Any = None
    """Class of the JSON that a success has; None: it is of another kind."""
    media: tuple[str, ...] = ()
    """Types of successes that are no JSON."""
    status: int = 200
    """Status of a success."""
    others: Mapping[int, Any] = attrs.field(factory=dict)
    """Further answers by status, with their classes; None for one without JSON."""
    query: Mapping[str, Any] = attrs.field(factory=dict)
    """Types of the query's parts, of an operation whose protocol reads them itself; others have them in the table of operations."""
    body: Any = None
    """Class of the JSON body, likewise."""
    error: Any = None
    """Class of its errors, and of those that all operations have; None: the one that all others have."""
    errors: tuple[int, ...] = ()
    """Statuses of refusals beside those that follow from the rest: of the token, the path, the body and the host."""


# ------------------------------------------------------------------ the table

_CHANGED_TASK: Final = Form(answer=TaskChangeAnswer, errors=(409,))
_CHANGED_JOB: Final = Form(answer=Job)
_REPLACED: Final = Form(answer=GoneBackAnswer, status=202, errors=(409,))

FORMS: Final[Mapping[str, Form]] = {
    "GET /": Form(media=(HTML,), others={304: None}),
    "GET /static/{path:path}": Form(media=(FILE,), others={304: None}),
    "GET /sw.js": Form(media=("text/javascript",), others={304: None}),
    "GET /healthz": Form(answer=AliveAnswer),
    "GET /readyz": Form(answer=ReadyAnswer, others={503: ReadyAnswer}),
    "GET /ws": Form(status=101, errors=(426,)),
    "GET /api/login": Form(answer=SignInAnswer),
    "POST /api/login": Form(answer=SignedInAnswer, errors=(401, 403)),
    "GET /login": Form(media=(HTML,), errors=(401,)),
    "POST /login": Form(status=303, errors=(401, 403)),
    "POST /api/logout": Form(answer=EmptyAnswer, errors=(401, 403, 503)),
    "POST /api/messages": Form(answer=TurnAnswer, others={202: SentAnswer}, errors=(429,)),
    "GET /api/replies": Form(answer=RepliesAnswer, errors=(403,)),
    "POST /v1/chat/completions": Form(answer=CompletionAnswer, media=(STREAM,), errors=(429,)),
    "POST /v1/responses": Form(answer=ResponseAnswer, media=(STREAM,), errors=(404, 429)),
    "POST /v1/embeddings": Form(answer=EmbeddingsAnswer, errors=(429,)),
    "POST /v1/audio/transcriptions": Form(
        answer=TranscriptionAnswer,
        media=(TEXT, "text/vtt"),
        errors=(429,),
    ),
    "POST /v1/audio/speech": Form(
        media=("audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav", "audio/pcm"),
        errors=(429,),
    ),
    "GET /v1/models": Form(answer=ModelsAnswer),
    "GET /v1/models/{id}": Form(answer=ModelJson),
    "GET /api/events": Form(media=(STREAM,)),
    "GET /api/status": Form(answer=StatusAnswer),
    "POST /api/interrupt": Form(answer=InterruptAnswer),
    "GET /api/tree": Form(answer=ActorJson),
    "GET /api/usage": Form(answer=UsageAnswer),
    "GET /api/channels": Form(answer=ChannelsAnswer),
    "GET /api/nodes": Form(answer=NodesAnswer, errors=(503,)),
    "POST /api/nodes/{name}/drain": Form(answer=NameJson, errors=(404, 503)),
    "GET /api/mcp": Form(answer=ServersAnswer),
    "GET /api/mcp/{name}": Form(answer=ServerToolsAnswer),
    "POST /api/mcp/{name}": Form(answer=SortingAnswer),
    "GET /api/tasks": Form(answer=TasksAnswer),
    "GET /api/tasks/{id}": Form(answer=TaskView),
    "GET /api/tasks/{id}/log": Form(answer=TaskLogAnswer),
    "POST /api/tasks/{id}/cancel": attrs.evolve(_CHANGED_TASK, answer=StoppedTask),
    "POST /api/tasks/{id}/suspend": _CHANGED_TASK,
    "POST /api/tasks/{id}/continue": _CHANGED_TASK,
    "POST /api/tasks/{id}/resume": _CHANGED_TASK,
    "GET /api/memory": Form(answer=FilesAnswer),
    "GET /api/memory/log": Form(answer=ChangesAnswer, errors=(404,)),
    "GET /api/memory/search": Form(answer=SearchAnswer),
    "POST /api/memory/undo": Form(answer=UndoAnswer, errors=(404,)),
    "GET /api/memory/{path:path}": Form(answer=FileAnswer),
    "PUT /api/memory/{path:path}": Form(answer=WrittenAnswer, errors=(409,)),
    "GET /api/skills": Form(answer=SkillsAnswer),
    "GET /api/sessions": Form(answer=SessionsAnswer),
    "GET /api/sessions/{file}": Form(answer=SessionAnswer),
    "GET /api/conversations": Form(answer=ConversationsAnswer),
    "GET /api/conversations/{key}/messages": Form(answer=MessagesAnswer),
    "POST /api/conversations/{key}/retry": _REPLACED,
    "POST /api/conversations/{key}/edit": _REPLACED,
    "POST /api/conversations/{key}/rename": Form(answer=NameJson),
    "GET /api/push": Form(answer=PushAnswer, errors=(403, 503)),
    "POST /api/push": Form(answer=PushJson, errors=(403, 503)),
    "DELETE /api/push/{id}": Form(answer=EmptyAnswer, errors=(403, 503)),
    "POST /api/push/seen": Form(answer=EmptyAnswer),
    "GET /api/approvals": Form(answer=ApprovalsAnswer),
    "GET /api/approvals/granted": Form(answer=GrantsAnswer),
    "DELETE /api/approvals/granted/{id}": Form(answer=RevokedAnswer),
    "POST /api/approvals/{id}": Form(answer=DecisionAnswer),
    "GET /api/cron": Form(answer=JobsAnswer),
    "POST /api/cron": Form(answer=Job, status=201),
    "DELETE /api/cron/{id}": _CHANGED_JOB,
    "POST /api/cron/{id}/run": _CHANGED_JOB,
    "POST /api/cron/{id}/pause": _CHANGED_JOB,
    "POST /api/cron/{id}/resume": _CHANGED_JOB,
    "GET /api/addresses": Form(answer=AddressesAnswer),
    "GET /api/people": Form(answer=PeopleAnswer),
    "POST /api/people": Form(answer=PersonAnswer, errors=(404,)),
    "DELETE /api/people/{who}": Form(answer=PersonAnswer),
    "GET /api/settings": Form(answer=SettingsAnswer),
    "POST /api/settings": Form(answer=SettingAnswer),
    "POST /api/settings/reload": Form(answer=ReloadAnswer),
    "GET /api/log": Form(answer=LogAnswer),
    "GET /api/completions": Form(answer=CompletionsAnswer),
    "POST /api/markdown": Form(answer=HtmlAnswer),
    "GET /metrics": Form(media=(TEXT,), errors=(401, 403)),
    "POST /hooks/{name}": Form(answer=DeliveryAnswer, status=202, others={200: DeliveryAnswer}, errors=(401, 409, 429)),
    "GET /openapi.json": Form(answer=Metadata),
}
"""Form of each operation by method and path. A webhook of a chat service has the form that the service gives it."""

EXAMPLES: Final[Mapping[str, Json]] = {
    "PushBody": {
        "endpoint": "https://push.example/send/abc",
        "keys": {"p256dh": "BCVxsr7N_eNgVRqvHtD0zTZs", "auth": "BTBZMqHH6r4Tts7J_aSIgg"},
        "about": "approvals",
        "text": False,
    },
    "PairingBody": {"code": "7KQ2MX4P"},
    "PersonAnswer": {"who": "telegram:42"},
    "PeopleAnswer": {
        "people": [{"who": "telegram:7", "since": 1772029800000, "by": "cli:main"}],
        "codes": [{"code": "7KQ2MX4P", "who": "telegram:42", "channelId": "42", "expires": 1772033400000}],
    },
    "AddressesAnswer": {"conversations": [{"type": "cli", "channelId": "main"}]},
    "SettingBody": {"path": ["log", "level"], "was": '"info"', "value": "debug"},
    "SettingAnswer": {"value": '"debug"', "changed": ["log.level"], "afterRestart": []},
    "ReloadAnswer": {"changed": ["log.level"], "afterRestart": []},
    "SettingsAnswer": {
        "sections": [{"name": "log", "path": ["log"], "keys": [{"key": "level", "value": '"info"'}]}],
        "mayEdit": True,
    },
    "LogAnswer": {"lines": ["2026-02-25T14:30:00.000Z info    daemon: ready model=anthropic/x"], "end": 1840},
    "CompletionsAnswer": {
        "commands": [{"name": "/stop", "description": "End what is being done."}],
        "skills": [],
        "models": ["anthropic/x"],
        "model": "anthropic/x",
    },
    "MarkdownBody": {"texts": ["*hello*"]},
    "HtmlAnswer": {"html": ["<p><em>hello</em></p>"]},
    "SearchAnswer": {
        "results": [
            {"in": "facts", "path": "facts/user.md", "line": 3, "title": "User", "snippet": "likes tea"},
        ],
    },
    "SeenBody": {"approvals": ["a-7f3k"]},
    "MessageBody": {"text": "What is on my list for today?", "id": "m-1"},
    "SentAnswer": {"id": "m-1"},
    "TurnAnswer": {
        "id": "m-1",
        "replies": [{"text": "Nothing so far.", "channel": {"type": "api", "channelId": "token-1f2e"}, "seq": 1}],
        "done": True,
    },
    "RepliesAnswer": {"replies": [], "seq": 1},
    "InterruptBody": {"channel": {"type": "cli", "channelId": "main"}},
    "InterruptAnswer": {"interrupted": False, "text": "No answer was being made.", "tasks": [], "waiting": 0},
    "CompletionBody": {"model": "pegasus", "messages": [{"role": "user", "content": "Hello"}], "stream": False},
    "CompletionAnswer": {
        "id": "chatcmpl-1f2e",
        "object": "chat.completion",
        "created": 1772029800,
        "model": "pegasus",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1200, "completion_tokens": 12, "total_tokens": 1212},
    },
    "ResponseBody": {"model": "pegasus", "input": "Hello"},
    "EmbeddingsBody": {"model": "pegasus", "input": ["a cup of tea"]},
    "SpeechBody": {"model": "pegasus", "input": "Good morning", "voice": "alloy"},
    "ModelsAnswer": {
        "object": "list",
        "data": [{"id": "pegasus", "object": "model", "created": 0, "owned_by": "pegasus"}],
    },
    "SortingBody": {"trust": "hints", "asks": ["send_*"]},
    "InputBody": {"input": "The blue one."},
    "TaskChangeAnswer": {"taskId": "1d3af0ebec7cb0d8", "status": "resumed"},
    "FileBody": {"content": "# User\n\n- likes tea\n"},
    "FileAnswer": {"path": "facts/user.md", "content": "# User\n\n- likes tea\n"},
    "WrittenAnswer": {"path": "facts/user.md", "size": 20},
    "UndoBody": {"n": 1},
    "EditBody": {"id": "m-1", "text": "What is on my list for tomorrow?"},
    "NameJson": {"name": "Plans for tomorrow"},
    "GoneBackAnswer": {"id": "again-1f2e", "replaces": "m-1"},
    "ConversationsAnswer": {
        "conversations": [
            {
                "key": "current",
                "title": "What is on my list for today?",
                "named": False,
                "last": 1772029800000,
                "messages": 2,
                "archived": False,
                "chat": None,
            }
        ],
        "next": None,
    },
    "MessagesAnswer": {
        "messages": [{"from": "user", "text": "Hello", "ts": 1772029800000, "id": "m-1"}],
        "before": None,
    },
    "DecisionBody": {"decision": "allow", "scope": "once"},
    "JobBody": {"schedule": {"cron": "0 9 * * 1-5"}, "prompt": "What is new?", "channel": "cli:main"},
    "TokenBody": {"token": "the content of <home>/token"},
    "SignedInAnswer": {"name": "home", "scopes": ["message", "read", "control"]},
    "DeliveryAnswer": {"taskId": "1d3af0ebec7cb0d8"},
    "ReadyAnswer": {"ready": True, "down": [], "parked": []},
}
"""Example of a body or an answer, by the name of its class."""
