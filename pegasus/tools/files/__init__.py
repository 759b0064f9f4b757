"""The file tools: read_file, write_file, list_files, delete_file, move_file, get_file_info, edit_file, grep_files.

All within the allowed folders (`pegasus.tools.paths`), in short pieces in threads, never through the event loop.
"""

from pegasus.tools.files.tools import file_tools

__all__ = ["file_tools"]
