"""`/model`: which model thinks, which others could, and changing it while the agent runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from pegasus.models.roles import ModelConfigError

BACK: Final = "default"
"""What goes back to the model of the settings."""
MOST_SHOWN: Final = 40


class ModelSwitch(Protocol):
    """What can change the model. chosen: what was chosen at run time, "" = the settings decide."""

    @property
    def current(self) -> str:
        """`<provider>/<model>` that thinks now."""

    @property
    def chosen(self) -> str: ...

    def choices(self) -> Sequence[str]:
        """What can be chosen, those of the settings first."""

    async def choose(self, spec: str) -> str:
        """Think with this model from the next call on, over restarts; "" = that of the settings. Gives its name.

        Raises ModelConfigError with what is allowed, and StorageError; nothing has changed then.
        """


async def model_command(argument: str, switch: ModelSwitch, *, owner: bool) -> str:
    """The answer to `/model argument`. Only an owner may change anything. Raises StorageError."""
    wanted = argument.strip()
    if not wanted:
        return _shown(switch)
    if not owner:
        return "Only my owner may change the model."
    before = switch.current
    try:
        now = await switch.choose("" if wanted.lower() == BACK else wanted)
    except ModelConfigError as error:
        return f"{error}\n{_listed(switch.choices())}\nNothing has changed: I think with {switch.current}."
    if now == before:
        return f"I think with {now}, as before."
    back = "" if not switch.chosen else f" /model {BACK} goes back to the one of the settings."
    return f"From now on I think with {now} (before: {before}).{back}"


def _shown(switch: ModelSwitch) -> str:
    why = "chosen with /model" if switch.chosen else "as in the settings"
    return f"I think with {switch.current} ({why}).\n{_listed(switch.choices())}"


def _listed(choices: Sequence[str]) -> str:
    lines = [f"- {name}" for name in choices[:MOST_SHOWN]]
    if len(choices) > MOST_SHOWN:
        lines.append(f"- … {len(choices) - MOST_SHOWN} more")
    return "\n".join(["Models that can be chosen (/model <provider>/<model>):", *lines])
