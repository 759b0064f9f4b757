"""The command `/model`: show the model that answers and those that could, and change it while the agent runs.

    /model                       shows the model and the choices
    /model anthropic/claude-…    changes it, for owners only
    /model default               goes back to the model of the settings

The text is made here; the change is made by a `ModelSwitch`, the app's `Reloader`. It writes the choice to disk first, so that an
answer "Now using …" is still true after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from pegasus.models.roles import ModelConfigError

BACK: Final = "default"
"""Argument that goes back to the model of the settings."""
MOST_SHOWN: Final = 40
"""Models in a list."""


class ModelSwitch(Protocol):
    """Object that changes the model of the running agent."""

    @property
    def current(self) -> str:
        """`<provider>/<model>` that answers now."""

    @property
    def chosen(self) -> str:
        """Model that was chosen at run time, "" if the settings decide."""

    def choices(self) -> Sequence[str]:
        """Return the models that can be chosen, those of the settings first."""

    async def choose(self, spec: str) -> str:
        """Use this model from the next call on, over restarts; "" to use that of the settings. Return its name.

        Raises ModelConfigError with what is allowed, and StorageError; nothing has changed then.
        """


async def model_command(argument: str, switch: ModelSwitch, *, owner: bool) -> str:
    """Return the answer to `/model argument`. owner: whether the sender may change anything. Raises StorageError."""
    wanted = argument.strip()
    if not wanted:
        origin = "chosen with /model" if switch.chosen else "as in the settings"
        return f"I use {switch.current} ({origin}).\n{_list(switch.choices())}"
    if not owner:
        return "Only my owner may change the model."
    before = switch.current
    try:
        now = await switch.choose("" if wanted.lower() == BACK else wanted)
    except ModelConfigError as error:
        return f"{error}\n{_list(switch.choices())}\nStill using {switch.current}."
    if now == before:
        return f"Still using {now}."
    back = f" /model {BACK} goes back to the one of the settings." if switch.chosen else ""
    return f"Now using {now} (before: {before}).{back}"


def _list(choices: Sequence[str]) -> str:
    lines = [f"- {name}" for name in choices[:MOST_SHOWN]]
    if len(choices) > MOST_SHOWN:
        lines.append(f"- … {len(choices) - MOST_SHOWN} more")
    return "\n".join(["Models that can be chosen (/model <provider>/<model>):", *lines])
