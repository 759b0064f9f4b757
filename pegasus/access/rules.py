"""Rules about tool calls: those of the settings, and the decisions where no rule fits.

A decision is made from facts that the program knows: the tool and its arguments, the person that the work is done for, what the
work has read before, and whether commands are walled in. Nothing that a model writes is asked for an opinion.

The order of `Policy.decide`:

1. The first rule of `policy.rules` that fits decides.
2. Otherwise the strictest of these that apply:
   * work for a guest runs no commands, writes nothing outside the workspace, and changes nothing on a server;
   * a call that reaches out, by work that has read text from outside, is decided by `policy.after_untrusted`, unless that is "ask"
     and its values speak for it (`value_rules`);
   * a command without walls around it is asked for; one within partial walls is, for others than owners and once the work has read
     text from outside;
   * `policy.default`, for tools that reach anything outside the agent itself.

What no rule can allow is not decided here: file tools never touch the home of the agent, its keys and settings, and connections go to
public addresses only. They refuse by themselves.

Patterns are those of shells (`fnmatch`): `*` stands for any text. A rule that allows is read narrowly and one that refuses is
read widely, because whoever writes a command chooses its form. So an `allow` with a `match` fits only a bare command
(`bare_commands`) in the workspace, without variables that the call or the task has set. An `ask` or `deny` also fits one of
several commands in a line, and one with other blanks or quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import attrs

from pegasus.access.principal import Principal, Role
from pegasus.policy import REACHES_OUT

NO_WALLS: Final = "no walls stand around commands on this machine"
"""Reason for asking about a command."""
_JOINTS: Final = re.compile(r"&&|\|\||[;&|\n\r`(){}]|\$\(|[<>]\(")
"""Characters that separate commands in a line of a shell, or begin one inside another."""
_QUOTES: Final = str.maketrans("", "", "'\"\\")
"""Removes the characters by which a shell quotes: `g"i"t` is `git`."""


class Decision(StrEnum):
    """Fate of a call. The values are those of the settings."""

    ALLOW = "allow"
    """The call is made."""
    ASK = "ask"
    """The call waits until an owner has said yes."""
    DENY = "deny"
    """The call is not made; the model gets an error that says so."""


_STRICTNESS: Final = (Decision.ALLOW, Decision.ASK, Decision.DENY)
"""Decisions, the mildest first."""


@attrs.frozen(eq=False, repr=False)
class SandboxState:
    """Walls around commands, as far as they matter for decisions."""

    stands: bool = False
    """Commands cannot reach the home of the agent, other processes, or files outside of what they were given."""
    has_network: bool = True
    """Commands can send data out."""
    is_partial: bool = False
    """Commands can do more outside than these walls should let them, though they read no keys and send nothing out."""
    unsearched: str = ""
    """Reason why these walls do not keep what they should within the folders that commands write to; "": they do."""


@attrs.frozen(eq=False, repr=False)
class CallRequest:
    """The facts about a tool call that decisions are made from.

    Example::

        CallRequest("shell_exec", principal, targets=(("git push origin main",),), is_command=True)
    """

    tool: str
    """Name of the tool."""
    principal: Principal
    """The person that the call is made for."""
    targets: tuple[tuple[str, ...], ...] = ()
    """Texts that `match` of a rule is compared with: a command line, a URL, or each path, which may be written in several forms."""
    is_command: bool = False
    """True if it runs code."""
    is_bare: bool = False
    """True for a command whose line says all that it does: `bare_commands`, in the workspace, with no variable set for it."""
    reaches_out: bool = False
    """True if it sends data out, or changes something outside the workspace."""
    changes_world: bool = False
    """True if it writes outside the workspace, or changes something on a server: what a guest's work may not do."""
    stays_inside: bool = False
    """True if it writes into the workspace only."""
    is_prompt: bool = False
    """True if it changes a file that is part of prompts, which a question about it says."""
    is_inner: bool = False
    """True if it reaches nothing but the agent itself, such as its memory and its tasks; `policy.default` is not about it."""
    doubt: Callable[[], str] = lambda: REACHES_OUT
    """Returns why it needs a question once the work has read text from outside (`value_rules`), "" if it needs none. Only asked where
    that matters, since it looks at all calls before."""
    sources: tuple[str, ...] = ()
    """Kinds of outside sources that the work has read, such as ("web",)."""


@attrs.frozen
class PolicyRule:
    """A rule of the settings."""

    tool: str
    """Name or pattern."""
    decision: Decision
    """Decision about a call that fits."""
    match: str = ""
    """Pattern for the whole command line, path or URL; "" fits all."""
    who: Role | None = None
    """Role of the people whose work it is about; None: everybody."""

    def fits(self, call: CallRequest) -> bool:
        """Return whether the rule is about this call."""
        if self.who not in (None, call.principal.role) or not fnmatchcase(call.tool, self.tool):
            return False
        if not self.match:
            return True
        if self.decision is Decision.ALLOW:
            if call.is_command and not call.is_bare:
                return False
            return bool(call.targets) and all(map(self._fits_one, call.targets))
        return any(self._fits_one(_parts(forms) if call.is_command else forms) for forms in call.targets)

    def _fits_one(self, texts: Iterable[str]) -> bool:
        return any(fnmatchcase(text, self.match) for text in texts)


def _parts(lines: Iterable[str]) -> Iterable[str]:
    """Yield each command line, and each command in it, without superfluous blanks; and the same without quotes."""
    for line in lines:
        for part in (line, *_JOINTS.split(line)):
            yield " ".join(part.split())
            yield " ".join(part.translate(_QUOTES).split())


@attrs.frozen(eq=False, repr=False)
class Ruling:
    """A decision and its reason. Example: `Ruling(Decision.ASK, "rule 2 of policy.rules")`."""

    decision: Decision
    """Fate of the call."""
    why: str = ""
    """One line for people and for the model; "" for what is simply allowed."""


@attrs.frozen(eq=False, repr=False)
class Policy:
    """The rules in force.

    Example::

        policy = Policy(parse_rules(settings.rules), Decision.ALLOW, Decision.ASK)
        policy.decide(call, SandboxState(stands=True)).decision
    """

    _rules: Sequence[PolicyRule] = ()
    """The rules in the order of the file; the first that fits counts."""
    _default: Decision = Decision.ALLOW
    """Decision for tools that no rule names."""
    _after_untrusted: Decision = Decision.ASK
    """Decision about calls that reach out, once their work has read text from outside."""

    def decide(self, call: CallRequest, walls: SandboxState) -> Ruling:
        """Return what becomes of a call, and why."""
        for number, rule in enumerate(self._rules, 1):
            if rule.fits(call):
                return Ruling(rule.decision, f"rule {number} of policy.rules")
        return max(self._usual(call, walls), key=lambda ruling: _STRICTNESS.index(ruling.decision))

    def _usual(self, call: CallRequest, walls: SandboxState) -> Iterable[Ruling]:
        """Yield the rulings that apply where no rule fits; the first of the strictest counts."""
        reaches_out = call.reaches_out or (call.is_command and (walls.has_network or not walls.stands))
        if not call.principal.is_owner and (call.is_command or call.changes_world):
            yield Ruling(Decision.DENY, "only work for the owner may do this")
        if call.is_command and not walls.stands:
            yield Ruling(Decision.ASK, NO_WALLS)
        gap = "the walls around commands are partial on this machine" if walls.is_partial else walls.unsearched
        if call.is_command and gap and (call.sources or not call.principal.is_owner):
            yield Ruling(Decision.ASK, gap)
        is_spared = self._after_untrusted is Decision.ASK and call.principal.is_owner
        if reaches_out and call.sources and (doubt := call.doubt() if is_spared else REACHES_OUT):
            why = f"this work has read text from outside ({', '.join(call.sources)}), and {doubt}"
            yield Ruling(self._after_untrusted, why)
        if not call.is_inner:
            yield Ruling(self._default, "policy.default")
        yield Ruling(Decision.ALLOW)


def parse_rules(tables: Iterable[Mapping[str, str]]) -> tuple[PolicyRule, ...]:
    """Return the rules of `policy.rules`. Raises ValueError for a word that no rule has; the settings were checked before."""
    return tuple(
        PolicyRule(
            table["tool"],
            Decision(table["decision"]),
            table.get("match", ""),
            Role(table["who"]) if table.get("who") else None,
        )
        for table in tables
    )
