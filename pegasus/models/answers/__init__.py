"""The answer of a model while it is streamed: pieces for the listener, and calls and reasoning that were written as text.

relay.py         `PieceRelay`: streamed pieces on their way to the listener, over attempts and fallback models
text_filter.py   `AnswerFilter`: text, reasoning and calls of one answer are told apart
text_calls.py    formats in which models write calls as text
quotes.py        calls that the model only shows: echoes of the prompt, and examples
"""

from pegasus.models.answers.relay import PieceRelay, pieces_of
from pegasus.models.answers.text_calls import find_calls
from pegasus.models.answers.text_filter import AnswerFilter

__all__ = ["AnswerFilter", "PieceRelay", "find_calls", "pieces_of"]
