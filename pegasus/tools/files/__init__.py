"""File tools: read_file, write_file, list_files, delete_file, move_file, get_file_info, edit_file, grep_files.

`tools` describes them to the model and runs the work in threads; the work is in `reading`, `changing` and `searching`. `incoming`
writes files that come in piece by piece, such as downloads. `keeping` keeps what is about to be changed, and `undo` takes it
back. All of it goes through `paths`, which restricts access to the allowed folders.

All of them work with descriptors of folders and not with paths, so that a link which is put in the way during a call
leads nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.tools.files.paths import (
    is_prompt_file,
    notes_of_owners,
    real_folder,
    real_folders,
    real_path,
    runs_by_itself,
)

if TYPE_CHECKING:
    from pegasus.tools.files.incoming import IncomingFile, save_incoming
    from pegasus.tools.files.reading import read_content
    from pegasus.tools.files.tools import file_tools
    from pegasus.tools.files.undo import UndoRefused, take_back
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "IncomingFile",
    "UndoRefused",
    "file_tools",
    "is_prompt_file",
    "notes_of_owners",
    "read_content",
    "real_folder",
    "real_folders",
    "real_path",
    "runs_by_itself",
    "save_incoming",
    "take_back",
]
