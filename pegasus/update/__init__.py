"""Updates: another version of the program, tried before it takes over.

candidate    the other version, installed in an environment of its own
"""

from pegasus.update.candidate import Candidate, UpdateError, prepare

__all__ = ["Candidate", "UpdateError", "prepare"]
