"""What a compaction carries over word for word, by code: promises, open questions, work that is not back, who talked where.

It is folded from the events of a session, on top of what the compaction before has carried; so it may be much older than the part
that is summarised. Everything is bounded: the newest of each kind, each no longer than an excerpt (trap T40).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import attrs

from pegasus.conversation import Entry
from pegasus.main_agent.compaction.planning import clip, is_opening
from pegasus.main_agent.compaction.talk import Handed, Heard, Returned, Said, events
from pegasus.main_agent.compaction.words import asks, promises
from pegasus.messages import Address, Json, Metadata

MOST: Final = 20
"""Of each kind that are carried, in a window of ROOMY tokens or more; fewer in a smaller one."""
EXCERPT: Final = 500
"""Characters of one text, likewise."""
ROOMY: Final = 64_000
KEPT_FOR: Final = 30 * 86_400_000
"""Ms that a promise without a task is carried on: nobody can tell by code whether it was kept."""


@attrs.frozen
class Promise:
    """A reply that says that something will come. tasks: those that were begun along with it and are not back."""

    ts: int
    address: Address
    text: str
    tasks: tuple[str, ...] = ()


@attrs.frozen
class Question:
    """Something asked, and not answered so far. ours: the agent has asked."""

    ts: int
    address: Address
    text: str
    ours: bool


@attrs.frozen
class Errand:
    """Work handed to a task that has not come back. question: what the task wants to know."""

    ts: int
    address: Address | None
    task_id: str
    description: str
    question: str = ""


@attrs.frozen
class Place:
    """A conversation: when something was last said there by others, how many messages, and by whom, where that is known."""

    address: Address
    last: int
    messages: int
    users: tuple[str, ...] = ()


@attrs.frozen
class Carried:
    """Oldest first."""

    promises: tuple[Promise, ...] = ()
    questions: tuple[Question, ...] = ()
    errands: tuple[Errand, ...] = ()
    places: tuple[Place, ...] = ()


@attrs.define(eq=False)
class _Fold:
    promises: list[Promise]
    questions: list[Question]
    errands: dict[str, Errand]
    places: dict[Address, Place]
    handed: dict[int, list[str]] = attrs.field(factory=dict)
    made: dict[int, list[Promise]] = attrs.field(factory=dict)

    def heard(self, event: Heard) -> None:
        known = self.places.pop(event.address, None)
        users = known.users if known else ()
        if event.user and event.user not in users:
            users = (*users[-4:], event.user)
        self.places[event.address] = Place(event.address, event.ts, known.messages + 1 if known else 1, users)
        self.questions = [q for q in self.questions if q.address != event.address or not q.ours]
        if asks(event.text):
            self.questions.append(Question(event.ts, event.address, event.text, ours=False))

    def said(self, event: Said) -> None:
        self.questions = [q for q in self.questions if q.address != event.address or q.ours]
        if asks(event.text):
            self.questions.append(Question(event.ts, event.address, event.text, ours=True))
        self.promises = [
            one
            for one in self.promises
            if one.address != event.address or not one.tasks or any(task in self.errands for task in one.tasks)
        ]
        tasks = tuple(self.handed.get(event.item, ())) if event.item is not None else ()
        promise = Promise(event.ts, event.address, event.text, tasks)
        if tasks or promises(event.text):
            self.promises.append(promise)
        if event.item is not None:
            self.made.setdefault(event.item, []).append(promise)

    def handed_on(self, event: Handed) -> None:
        self.errands[event.task_id] = Errand(event.ts, event.address, event.task_id, event.description)
        if event.item is None:
            return
        self.handed.setdefault(event.item, []).append(event.task_id)
        for before in self.made.get(event.item, ()):  # said first, begun then: it is about the same
            self._link(before, event.task_id)

    def came_back(self, event: Returned) -> None:
        if event.kind in ("completed", "failed"):
            self.errands.pop(event.task_id, None)
        elif event.kind == "needs information" and event.task_id in self.errands:
            errand = self.errands[event.task_id]
            self.errands[event.task_id] = attrs.evolve(errand, question=event.text)

    def _link(self, reply: Promise, task_id: str) -> None:
        for place, one in enumerate(self.promises):
            if (one.ts, one.address, one.text) == (reply.ts, reply.address, reply.text):
                self.promises[place] = attrs.evolve(one, tasks=(*one.tasks, task_id))
                return
        self.promises.append(attrs.evolve(reply, tasks=(task_id,)))


def carry(entries: Iterable[Entry], kept: Collection[Entry] = ()) -> Carried:
    """All that the session leaves open. kept: entries that stay word for word, of which nothing need be carried."""
    fold = _Fold([], [], {}, {})
    stay = {id(entry) for entry in kept}
    visible: list[int] = []
    for entry, event in events(entries):
        if is_opening(entry):
            fold = _begun(carried_in(entry.metadata))
        elif isinstance(event, Heard):
            fold.heard(event)
        elif isinstance(event, Said):
            fold.said(event)
        elif isinstance(event, Handed):
            fold.handed_on(event)
        elif isinstance(event, Returned):
            fold.came_back(event)
        if id(entry) in stay and isinstance(event, Heard | Said):
            visible.append(entry.ts)
    since = min(visible, default=None)

    def hidden(ts: int) -> bool:
        return since is None or ts < since

    return Carried(
        tuple(one for one in fold.promises if hidden(one.ts)),
        tuple(one for one in fold.questions if hidden(one.ts)),
        tuple(fold.errands.values()),
        tuple(fold.places.values()),
    )


def _begun(before: Carried) -> _Fold:
    return _Fold(
        list(before.promises),
        list(before.questions),
        {one.task_id: one for one in before.errands},
        {one.address: one for one in before.places},
    )


def bounded(carried: Carried, now: int, window: int, open_tasks: Collection[str] | None = None) -> Carried:
    """The newest of each, as excerpts; what is too old goes. open_tasks: those that are not done, where that is known.

    now: wall clock, ms. window: tokens of the model.
    """
    most, excerpt = caps(window)
    errands = [one for one in carried.errands if open_tasks is None or one.task_id in open_tasks]
    promises = [one for one in carried.promises if one.tasks or now - one.ts < KEPT_FOR]
    questions = [one for one in carried.questions if now - one.ts < KEPT_FOR]
    return Carried(
        tuple(attrs.evolve(one, text=clip(one.text, excerpt)) for one in promises[-most:]),
        tuple(attrs.evolve(one, text=clip(one.text, excerpt)) for one in questions[-most:]),
        tuple(
            attrs.evolve(one, description=clip(one.description, 200), question=clip(one.question, excerpt))
            for one in errands[-most:]
        ),
        carried.places[-most:],
    )


def caps(window: int) -> tuple[int, int]:
    """How many of each kind, and characters of each text."""
    share = min(1.0, window / ROOMY)
    return max(3, int(MOST * share)), max(120, int(EXCERPT * share))


# ------------------------------------------------------------------ in the metadata of the opening line


def to_metadata(carried: Carried) -> dict[str, Json]:
    """For the next compaction; `carried_in` is the way back."""
    return {
        "promises": [[one.ts, *_pair(one.address), one.text, list(one.tasks)] for one in carried.promises],
        "questions": [[one.ts, *_pair(one.address), one.text, one.ours] for one in carried.questions],
        "errands": [[e.ts, *_pair(e.address), e.task_id, e.description, e.question] for e in carried.errands],
        "places": [[one.last, *_pair(one.address), one.messages, list(one.users)] for one in carried.places],
    }


def carried_in(metadata: Metadata) -> Carried:
    """What an opening line carries; what somebody has changed by hand beyond recognition is left out."""
    found: Any = metadata.get("carried")
    if not isinstance(found, Mapping):
        return Carried()
    return Carried(
        tuple(
            _read(
                found,
                "promises",
                lambda r: Promise(int(r[0]), Address(str(r[1]), str(r[2])), str(r[3]), tuple(map(str, r[4]))),
            )
        ),
        tuple(
            _read(
                found, "questions", lambda r: Question(int(r[0]), Address(str(r[1]), str(r[2])), str(r[3]), bool(r[4]))
            )
        ),
        tuple(
            _read(
                found,
                "errands",
                lambda r: Errand(int(r[0]), Address(str(r[1]), str(r[2])), str(r[3]), str(r[4]), str(r[5])),
            )
        ),
        tuple(
            _read(
                found,
                "places",
                lambda r: Place(Address(str(r[1]), str(r[2])), int(r[0]), int(r[3]), tuple(map(str, r[4]))),
            )
        ),
    )


def _read(found: Any, key: str, make: Any) -> list[Any]:
    rows = found.get(key)
    result = []
    for row in rows if isinstance(rows, list) else ():
        try:
            result.append(make(row))
        except (TypeError, ValueError, OverflowError, IndexError, KeyError):
            continue
    return result


def _pair(address: Address | None) -> tuple[str, str]:
    return (address.type, address.channel_id) if address is not None else ("", "")
