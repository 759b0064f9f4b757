"""The answer of a model while it is streamed: pieces for the listener, and calls and reasoning that were written as text.

streaming.py     `AnswerFilter`: text, reasoning and calls of one answer are told apart; `PieceRelay`: its pieces reach the listener
text_calls.py    formats in which models write calls as text, and which of them the model only shows
text_regions.py  where in a text such calls may stand
"""

from pegasus.models.answers.streaming import AnswerFilter, PieceRelay, pieces_of
from pegasus.models.answers.text_calls import find_calls, without_calls_in_text

__all__ = ["AnswerFilter", "PieceRelay", "find_calls", "pieces_of", "without_calls_in_text"]
