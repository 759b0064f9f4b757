"""The answer of a model while it is streamed: pieces for the listener, and calls and reasoning that were written as text.

streaming.py     `AnswerFilter`: text, reasoning and calls of one answer are told apart; `PieceRelay`: its pieces reach the listener
text_calls.py    formats in which models write calls as text
quotes.py        calls that the model only shows: echoes of the prompt, and examples
"""

from pegasus.models.answers.streaming import AnswerFilter, PieceRelay, pieces_of
from pegasus.models.answers.text_calls import find_calls

__all__ = ["AnswerFilter", "PieceRelay", "find_calls", "pieces_of"]
