"""Process of the daemon: its home, lock, signals, ready line, standard streams, and systemd's notify protocol.

Everything that makes a good supervised process, without knowledge of what the daemon does:

    home         the home directory: its paths, its token, its lock, the sample workspace of a first start
    data_format  the form of the files in data, and the way from an older one
    own_folder   folders of a person's own that tasks may be given
    process      limits, protection, clock and standard streams of the process
    signals      signals that stop the daemon or make it reload
    daemon       the announcement that the daemon is ready

Example::

    home = resolve_home(profile="work")
    with own_home(home), handle_signals(grace=10.0, on_reload=reload) as signals:
        with announced(home, Notifier.from_environment(), ws="ws://127.0.0.1:7717") as daemon:
            print_line(daemon.ready_line)
            await signals.stop.wait()

The lock comes first: two daemons of one home would write the same files. The ready line comes last, when everything
listens, because a service manager sends clients from then on.
"""

from pegasus.host.daemon import (
    TRIAL_LINE,
    Notifier,
    announced,
    ask_to_start_again,
    is_alive,
    is_asked_to_start_again,
    read_daemon,
)
from pegasus.host.data_format import (
    FORMAT,
    check_format,
    free_backup_name,
    is_being_restored,
    mark_restoring,
    prepare_data,
    read_format,
    write_format,
)
from pegasus.host.home import (
    SHORTEST_TOKEN,
    Home,
    HomeBusy,
    HomeError,
    ensure_token,
    make_samples,
    own_home,
    read_if_there,
    read_token,
    replace_private,
    resolve_home,
    sync_folder,
    write_private,
)
from pegasus.host.own_folder import folder_problem
from pegasus.host.process import (
    command_name,
    fill_standard_streams,
    forbid_inspection,
    print_error,
    print_line,
    raise_descriptor_limit,
    silence_stream,
    wall_clock,
)
from pegasus.host.signals import Signals, handle_signals

__all__ = [
    "FORMAT",
    "SHORTEST_TOKEN",
    "TRIAL_LINE",
    "Home",
    "HomeBusy",
    "HomeError",
    "Notifier",
    "Signals",
    "announced",
    "ask_to_start_again",
    "check_format",
    "command_name",
    "ensure_token",
    "fill_standard_streams",
    "folder_problem",
    "forbid_inspection",
    "free_backup_name",
    "handle_signals",
    "is_alive",
    "is_asked_to_start_again",
    "is_being_restored",
    "make_samples",
    "mark_restoring",
    "own_home",
    "prepare_data",
    "print_error",
    "print_line",
    "raise_descriptor_limit",
    "read_daemon",
    "read_format",
    "read_if_there",
    "read_token",
    "replace_private",
    "resolve_home",
    "silence_stream",
    "sync_folder",
    "wall_clock",
    "write_format",
    "write_private",
]
