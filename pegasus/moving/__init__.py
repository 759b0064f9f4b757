"""Moving: the data of an agent as files and in a database, and the way from one to the other.

migrating    the moves, each of which is whole or has not happened
folder       a folder of data as contents, and contents as a folder
"""

from pegasus.moving.folder import DataFolder, FolderError, FolderWriter, Tally
from pegasus.moving.migrating import (
    Moved,
    export_database,
    move_to_database,
    move_to_folder,
    name_counts,
    part_of,
    put_in_place,
)

__all__ = [
    "DataFolder",
    "FolderError",
    "FolderWriter",
    "Moved",
    "Tally",
    "export_database",
    "move_to_database",
    "move_to_folder",
    "name_counts",
    "part_of",
    "put_in_place",
]
