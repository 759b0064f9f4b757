"""Wire formats: translation between the values of `base.py` and one HTTP API each. No I/O.

    wire_format.py      `WireFormat` and `AnswerAssembler`: the interface, and what all formats share: JSON, names, reasons of an end
    answer_blocks.py    answers whose blocks stand in an order that counts
    pictures.py         which pictures are sent, and what a model is told about the others
    anthropic.py        Anthropic's Messages; claude_thinking.py: thinking of each Claude
    chat.py             OpenAI's Chat Completions, which many servers speak
    chat_dialects.py    what single services want otherwise
    responses.py        OpenAI's Responses
    ollama.py           Ollama's own API

To add a format, see `wire_format.py`; `PROVIDERS` says who speaks which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.models.formats.pictures import EXTENSIONS, MOST_PICTURES, image_tokens, picture_problem, picture_type

if TYPE_CHECKING:
    from pegasus.models.formats.anthropic import AnthropicWire
    from pegasus.models.formats.chat import ChatWire, read_again
    from pegasus.models.formats.chat_dialects import ChatDialect, dialect_of
    from pegasus.models.formats.claude_thinking import thinking_way
    from pegasus.models.formats.ollama import OllamaWire, usual_window
    from pegasus.models.formats.responses import ResponsesWire, is_reasoning_model
    from pegasus.models.formats.wire_format import (
        AnswerAssembler,
        ToolNames,
        WireFormat,
        encode_json,
        unfinished,
        usage_of,
    )
else:
    # Of the formats, only that of the model that is used is imported.
    __getattr__ = late_names(__name__)

__all__ = [
    "EXTENSIONS",
    "MOST_PICTURES",
    "AnswerAssembler",
    "AnthropicWire",
    "ChatDialect",
    "ChatWire",
    "OllamaWire",
    "ResponsesWire",
    "ToolNames",
    "WireFormat",
    "dialect_of",
    "encode_json",
    "image_tokens",
    "is_reasoning_model",
    "picture_problem",
    "picture_type",
    "read_again",
    "thinking_way",
    "unfinished",
    "usage_of",
    "usual_window",
]
