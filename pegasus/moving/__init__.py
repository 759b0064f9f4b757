"""Moving: the data of an agent as files and in a database, and the way from one to the other.

folder       a folder of data as contents, and contents as a folder
"""

from pegasus.moving.folder import DataFolder, FolderError, FolderWriter, Tally

__all__ = ["DataFolder", "FolderError", "FolderWriter", "Tally"]
