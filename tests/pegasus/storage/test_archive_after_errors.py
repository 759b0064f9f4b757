"""A sync that has failed proves nothing when it is repeated: what it lost is written anew before the file is put aside."""

import errno

import pytest

from pegasus.storage.messages import StorageError
from pegasus.storage.volume import Volume
from pegasus.testing.memory_disk import MemoryFiles

AT = 1_772_029_800_123


@pytest.mark.parametrize("begun_by_another", [False, True])
@pytest.mark.parametrize("operation", range(1, 12))
def test_an_archive_that_is_tried_again_holds_all_of_the_file_when_the_power_fails(operation, begun_by_another):
    files = MemoryFiles()
    volume = Volume(files, "data")
    volume.append((("main/s", b"0\n"),))
    files.append_unsynced("main/s", b"1\n")
    if begun_by_another:
        volume = Volume(files, "data")
    files.fail(operation, OSError(errno.EIO, "fault"), 1)
    for _ in range(2):
        try:
            archived = volume.archive("main/s", b"new\n", AT)
            break
        except StorageError:
            continue
    files.crash(0, False)
    assert files.content(f"main/{archived}") == b"0\n1\n"
    assert Volume(files, "data").read("main/s") == b"new\n"
