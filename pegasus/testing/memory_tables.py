"""The tables of a database in memory: one plain method for each transaction of `pegasus.storage.database.tables.Database`.

There is one serial order, that of the calls. A method that raises has changed nothing, so each looks before it changes. What a method
promises is said where the interface has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import trio

from pegasus.messages import Address, OutboundMessage, escape_field
from pegasus.storage import ROW_FILES, Changed, Lease, LeaseLost, Overloaded, UnacknowledgedReply, rows_path
from pegasus.storage.database import (
    AcceptedItem,
    Content,
    DurableStep,
    FileContents,
    Heard,
    InboxItem,
    KnownAddress,
    NameTaken,
    NewItem,
    NodeFacts,
    NodeState,
    Notice,
    Numbering,
    Numbers,
    PostedReply,
    Renewal,
    ReplyNumbers,
    Rows,
    RowsContents,
    StoredItem,
    StoredReply,
)
from pegasus.wire import decode_object, encode_json, from_wire, to_wire

DAY = 24 * 3600
"""Seconds after which a node that has not left is forgotten."""


@attrs.define
class _NodeRow:
    """A registration. It lives while `until` is in the future."""

    facts: NodeFacts
    until: float
    is_draining: bool = False


@attrs.define
class _Owned:
    """The row of an owner key."""

    token: int = 0
    owner: int | None = None


@attrs.define
class _Item:
    """An item, done or not."""

    item: NewItem
    discarded: int = 0
    done_at: int | None = None


@attrs.define
class _Posted:
    """A reply of the outbox. message: None if its text is gone."""

    message: OutboundMessage
    at: int
    has_text: bool = True


@attrs.define
class _Outbox:
    """The replies to an address, by seq."""

    replies: dict[int, _Posted] = attrs.field(factory=dict)
    last: int = 0
    acked: int = 0


@attrs.define
class _Budget:
    """A sum that is shared by all nodes."""

    spent: float = 0.0
    reserved: dict[str, tuple[int, float]] = attrs.field(factory=dict)
    """By id: the node that has reserved it, and how much."""
    settled: set[str] = attrs.field(factory=set)


class MemoryTables:
    """Contents of the database. announce: is called with each notice, at the end of a transaction that makes it."""

    def __init__(self, announce: Callable[[Notice], None], clock: Callable[[], int]) -> None:
        self.lines: dict[str, list[str]] = {}
        """The lines of each file that is kept as lines."""
        self.outbox: dict[Address, _Outbox] = {}
        """The replies of each address that has some."""
        self.inbox: dict[int, _Item] = {}
        """Items by number."""
        self._announce = announce
        self._clock = clock
        self._nodes: dict[int, _NodeRow] = {}
        self._last_node = 0
        self._owned: dict[str, _Owned] = {}
        self._last_n = 0
        self._numbers: dict[str, int] = {}
        """Numbers of items by their `dedupe`."""
        self._newest: dict[str, int] = {}
        """Number of the newest item of each owner key, done or not."""
        self._open: dict[str, dict[int, _Item]] = {}
        """Items that are not done, by owner key and number."""
        self._keys: dict[str, tuple[Address, int]] = {}
        """Address and seq of each reply, by its key."""
        self._blobs: dict[str, bytes] = {}
        self._written: dict[str, int] = {}
        """Wall clock of the last change of each file, ms."""
        self._rows: dict[tuple[str, str], Rows] = {}
        self._budgets: dict[str, _Budget] = {}
        self._seen: dict[Address, str] = {}
        """Accounts that were heard at each address that was seen, the newest last."""
        self._connected: dict[tuple[int, str, str | None], int] = {}
        """By node and place, the number of the newest call that told of the connection."""
        self._done: dict[str, Any] = {}
        """Answers of requests that were done, by id."""
        self._mark: str | None = None
        """Mark of the fill that made this database what it is."""

    # ------------------------------------------------------------------ nodes and ownership

    def register(self, facts: NodeFacts, lease: float) -> int:
        now = trio.current_time()
        for id, node in self._nodes.items():
            if node.facts.name == facts.name and node.until > now:
                if not facts.instance or node.facts.instance != facts.instance:
                    raise NameTaken(f"a node with the name {facts.name!r} is alive")
                node.until = now + lease
                return id
        self._last_node += 1
        self._nodes[self._last_node] = _NodeRow(facts, now + lease)
        return self._last_node

    def renew(self, node: int, lease: float, settings: str = "") -> Renewal | None:
        if not self._is_living(node):
            return None
        known = self._nodes[node]
        known.until, known.facts = (
            trio.current_time() + lease,
            attrs.evolve(known.facts, settings=settings or known.facts.settings),
        )
        return Renewal(self._nodes[node].is_draining, sum(map(self._is_living, self._nodes)))

    def leave(self, node: int) -> None:
        self._nodes.pop(node, None)
        self._connected = {each: number for each, number in self._connected.items() if each[0] != node}
        self.give_back(node, [Lease(key, owned.token) for key, owned in self._owned.items() if owned.owner == node])

    def drain(self, name: str) -> bool:
        living = [node for id, node in self._nodes.items() if node.facts.name == name and self._is_living(id)]
        for node in living:
            node.is_draining = True
        return bool(living)

    def nodes(self) -> tuple[NodeState, ...]:
        now = trio.current_time()
        states = []
        for id, node in self._nodes.items():
            keys = tuple(sorted(key for key, owned in self._owned.items() if owned.owner == id))
            if node.until > now - DAY:
                states.append(NodeState(id, node.facts, node.until - now, node.is_draining, keys))
        return tuple(sorted(states, key=lambda state: state.facts.name))

    def take(self, node: int, kinds: Collection[str], limit: int, *, control_only: bool = False) -> tuple[Lease, ...]:
        if not self._is_living(node):
            return ()
        due = [
            (min(items), key)
            for key, items in self._open.items()
            if key.partition("/")[0] in kinds
            and self._owner(key) is None
            and (not control_only or any(each.item.lane == "control" for each in items.values()))
        ]
        return tuple(self._give(key, node) for _, key in sorted(due)[:limit])

    def claim(self, node: int, key: str) -> Lease | None:
        if not self._is_living(node) or self._owner(key) not in (None, node):
            return None
        return self._give(key, node)

    def give_back(self, node: int, leases: Collection[Lease]) -> None:
        for lease in leases:
            owned = self._owned.get(lease.owner)
            if owned is not None and (owned.owner, owned.token) == (node, lease.token):
                owned.owner = None
                if lease.owner in self._open:
                    self._announce(Notice("due", lease.owner))

    def end_lease(self, node: int) -> None:
        """Let the lease of a node end now, for tests."""
        self._nodes[node].until = trio.current_time()

    def _is_living(self, node: int) -> bool:
        return node in self._nodes and self._nodes[node].until > trio.current_time()

    def _owner(self, key: str) -> int | None:
        """Return the living owner of a key."""
        owned = self._owned.get(key)
        return owned.owner if owned is not None and owned.owner is not None and self._is_living(owned.owner) else None

    def _give(self, key: str, node: int) -> Lease:
        owned = self._owned.setdefault(key, _Owned())
        owned.token, owned.owner = owned.token + 1, node
        return Lease(key, owned.token)

    def _is_stale(self, lease: Lease | None) -> bool:
        return lease is not None and lease.token != self._owned.get(lease.owner, _Owned()).token

    def _check(self, *leases: Lease | None) -> None:
        for lease in leases:
            if self._is_stale(lease):
                raise LeaseLost(f"somebody else has the lease of {lease.owner if lease else ''}")

    # ------------------------------------------------------------------ inbox

    def accept(self, node: int, item: NewItem, max_waiting: int) -> AcceptedItem | Overloaded | Heard:
        if item.dedupe in self._numbers:
            return AcceptedItem(self._numbers[item.dedupe], duplicate=True)
        if (heard := self._seen.get(item.address, "")) != item.heard:
            return Heard(heard)
        waiting = [
            each.item
            for items in self._open.values()
            for each in items.values()
            if (each.item.lane, each.item.is_owners) == (item.lane, item.is_owners)
        ]
        if len(waiting) >= max_waiting:
            return Overloaded(len(waiting))
        of_sender = sum(each.sender == item.sender for each in waiting)
        if item.max_of_sender and of_sender >= item.max_of_sender:
            return Overloaded(of_sender, of_sender=True)
        previous = self._newest.get(item.key, 0)
        n = self._add(item)
        if self._owner(item.key) != node:
            self._announce(Notice("due", item.key))
        return AcceptedItem(n, previous=previous)

    def _add(self, item: NewItem, discarded: int = 0) -> int:
        self._last_n = n = self._last_n + 1
        self._numbers[item.dedupe] = self._newest[item.key] = n
        self.inbox[n] = self._open.setdefault(item.key, {})[n] = _Item(item, discarded)
        self._seen.pop(item.address, None)
        self._seen[item.address] = item.hears
        return n

    def discard(
        self,
        node: int,
        report: NewItem,
        before: int,
        priority: int,
        senders: Collection[str] | None,
        spared: Collection[int],
        lease: Lease | None,
    ) -> int | Heard | None:
        if report.dedupe in self._numbers:
            return None
        self._check(lease)
        if (heard := self._seen.get(report.address, "")) != report.heard:
            return Heard(heard)
        dropped = [
            n
            for n, found in self._open.get(report.key, {}).items()
            if n < before and n not in spared and found.item.address == report.address
            if (found.item.lane, found.item.is_apart) == ("main", report.is_apart) and found.item.priority <= priority
            if senders is None or (found.item.sender in senders and not found.item.is_owners)
        ]
        if dropped:
            for n in dropped:
                self._complete(n, self._clock())
            self._add(report, len(dropped))
            if self._owner(report.key) != node:
                self._announce(Notice("due", report.key))
        return len(dropped)

    def items(self, seen: Mapping[str, int]) -> tuple[StoredItem, ...]:
        found = ((n, each) for key in seen for n, each in self._open.get(key, {}).items() if n > seen[key])
        return tuple(StoredItem(n, each.item, each.discarded) for n, each in sorted(found, key=lambda pair: pair[0]))

    def newest_items(self, node: int) -> Mapping[Lease, int]:
        return {
            Lease(key, owned.token): self._newest[key] if key in self._open else 0
            for key, owned in self._owned.items()
            if owned.owner == node
        }

    def note(self, done: Sequence[tuple[int, Lease | None, int]], acknowledged: Mapping[Address, int]) -> None:
        for n, lease, at in done:
            if n in self.inbox and self.inbox[n].done_at is None and not self._is_stale(lease):
                self._complete(n, at)
        for address, seq in acknowledged.items():
            outbox = self.outbox.get(address)
            if outbox is not None and seq <= outbox.last:
                outbox.acked = max(outbox.acked, seq)

    def _complete(self, n: int, at: int) -> None:
        key = self.inbox[n].item.key
        self.inbox[n].done_at = at
        del self._open[key][n]
        if not self._open[key]:
            del self._open[key]

    def open_items(self, numbers: Collection[int]) -> frozenset[int]:
        return frozenset(n for n in numbers if n in self.inbox and self.inbox[n].done_at is None)

    def waiting(self, address: Address | None, lane: str | None, priority: int | None, is_apart: bool | None) -> int:
        return sum(
            address in (None, each.item.address)
            and lane in (None, each.item.lane)
            and (priority is None or each.item.priority <= priority)
            and is_apart in (None, key != "main")
            for key, items in self._open.items()
            for each in items.values()
        )

    # ------------------------------------------------------------------ durable steps

    def commit(self, step: DurableStep) -> tuple[StoredReply, ...]:
        if step.id in self._done:
            answer: tuple[StoredReply, ...] = self._done[step.id]
            return answer
        self._check(*step.leases)
        if not self._has_lines(step):
            for path, lines in step.lines:
                self._append(path, lines)
        answer = tuple(self._post(post.key, post.message, post.at) for post in step.posts)
        self._done[step.id] = answer
        return answer

    def _has_lines(self, step: DurableStep) -> bool:
        """Return whether a step has appended its lines already. Raises Changed if somebody else has written."""
        if step.after is None or not step.lines:
            return False
        path, lines = step.lines[0]
        found = self.lines.get(path, [])
        if len(found) == step.after:
            return False
        if len(found) < step.after or tuple(found[step.after : step.after + len(lines)]) != lines:
            raise Changed(f"{path} has {len(found)} lines and not {step.after}")
        return True

    def _append(self, path: str, lines: Iterable[str]) -> None:
        self.lines.setdefault(path, []).extend(lines)
        self._written[path] = self._clock()

    def _post(self, key: str, message: OutboundMessage, at: int) -> StoredReply:
        known = self._find(key)
        if known is not None:
            return known
        address = message.channel.address
        outbox = self.outbox.setdefault(address, _Outbox())
        outbox.last += 1
        message = attrs.evolve(message, seq=outbox.last, key=key)
        outbox.replies[outbox.last] = _Posted(message, at)
        self._keys[key] = address, outbox.last
        self._announce(Notice("reply", str(address)))
        return StoredReply(message, is_new=True)

    def _find(self, key: str) -> StoredReply | None:
        """Return the reply with this key."""
        if key not in self._keys:
            return None
        address, seq = self._keys[key]
        outbox = self.outbox[address]
        return StoredReply(outbox.replies[seq].message, seq <= outbox.acked)

    def posted(self, keys: Sequence[str]) -> tuple[StoredReply | None, ...]:
        return tuple(map(self._find, keys))

    def replies(self, after: Mapping[Address, int], limit: int) -> tuple[StoredReply, ...]:
        found = [
            reply
            for address in sorted(after)
            for reply in self._stored(self.outbox.get(address, _Outbox()))
            if reply.message.seq > after[address]
        ]
        return tuple(found[:limit])

    def unacknowledged(self, type: str, channel_id: str | None, limit: int) -> tuple[StoredReply, ...]:
        found = [
            reply
            for address in sorted(self.outbox)
            if address.type == type and channel_id in (None, address.channel_id)
            for reply in self._stored(self.outbox[address])
            if not reply.is_acknowledged
        ]
        return tuple(found[:limit])

    def open_replies(self, address: Address | None, limit: int) -> tuple[UnacknowledgedReply, ...]:
        found = [
            UnacknowledgedReply(each, reply.message.seq, reply.message.key)
            for each in sorted(self.outbox)
            if address in (None, each)
            for reply in self._stored(self.outbox[each])
            if not reply.is_acknowledged
        ]
        return tuple(found[:limit])

    def unfetched(self, before: int, limit: int) -> tuple[StoredReply, ...]:
        found = [
            StoredReply(max(old, key=lambda reply: reply.seq))
            for _, outbox in sorted(self.outbox.items())
            if (old := [each.message for n, each in outbox.replies.items() if n > outbox.acked and each.at < before])
        ]
        return tuple(found[:limit])

    def open_channels(self, type: str) -> tuple[str, ...]:
        owed = (address for address, outbox in sorted(self.outbox.items()) if outbox.acked < outbox.last)
        return tuple(address.channel_id for address in owed if address.type == type)

    def numberings(self, addresses: Collection[Address]) -> Mapping[Address, Numbering]:
        found = {address: self.outbox[address] for address in addresses if address in self.outbox}
        return {address: Numbering(outbox.last, outbox.acked) for address, outbox in found.items()}

    def last_seq(self, address: Address) -> int:
        """Return the last seq of an address, for tests."""
        return self.outbox[address].last if address in self.outbox else 0

    def owed(self, node: int) -> Mapping[Address, Numbering]:
        clients = {(type, channel_id) for each, type, channel_id in self._connected if each == node}
        return self.numberings(
            [
                address
                for address, outbox in self.outbox.items()
                if outbox.acked < outbox.last and ({(address.type, address.channel_id), (address.type, None)} & clients)
            ]
        )

    def _stored(self, outbox: _Outbox) -> list[StoredReply]:
        return [StoredReply(reply.message, seq <= outbox.acked) for seq, reply in sorted(outbox.replies.items())]

    # ------------------------------------------------------------------ addresses

    def connect(
        self, node: int, number: int, places: Collection[tuple[str, str | None]], *, is_connected: bool
    ) -> None:
        for type, channel_id in places:
            place = node, type, channel_id
            newest = max(number, self._connected.get(place, 0))
            if not is_connected:
                if newest == number:
                    self._connected.pop(place, None)
                continue
            self._connected[place] = newest
            if channel_id is not None:
                address = Address(type, channel_id)
                self._seen[address] = self._seen.pop(address, "")

    def addresses(self, channel_id: str | None, limit: int) -> tuple[KnownAddress, ...]:
        known = [
            KnownAddress(address, heard)
            for address, heard in reversed(self._seen.items())
            if channel_id is None or escape_field(address.channel_id) == escape_field(channel_id)
        ]
        return tuple(known[:limit])

    def served_types(self) -> frozenset[str]:
        return frozenset(type for node, type, id in self._connected if id is None and self._is_living(node))

    # ------------------------------------------------------------------ files

    def read(self, path: str) -> bytes:
        if path in self.lines:
            return b"".join(f"{line}\n".encode() for line in self.lines[path])
        return self._blobs.get(path, b"")

    def read_lines(self, after: Mapping[str, int]) -> dict[str, Sequence[str]]:
        found = {path: self.lines.get(path, [])[count:] for path, count in after.items()}
        return {path: lines for path, lines in found.items() if lines}

    def replace(self, path: str, content: bytes, at: int, lease: Lease | None) -> None:
        self._check(lease)
        self._put(path, content, at)

    def _put(self, path: str, content: bytes, at: int) -> None:
        if path.endswith(".jsonl"):
            self.lines[path] = content.decode().removesuffix("\n").split("\n") if content else []
        else:
            self._blobs[path] = content
        self._written[path] = at

    def archive(self, id: str, path: str, name: str, content: bytes, at: int, lease: Lease | None) -> bool:
        if id in self._done:
            return True
        self._check(lease)
        new = f"{path.rpartition('/')[0]}/{name}"
        if new in self._written:
            return False
        if path in self._written:
            self._put(new, self.read(path), self._written[path])
        self._put(path, content, at)
        self._done[id] = True
        return True

    def names(self, folder: str, beginning: str = "") -> tuple[tuple[str, int, int], ...]:
        inside = (path for path in self._written if path.rpartition("/")[0] == folder.rstrip("/"))
        found = [path for path in inside if path.rpartition("/")[2].startswith(beginning)]
        return tuple(sorted((path.rpartition("/")[2], len(self.read(path)), self._written[path]) for path in found))

    def remove(self, paths: Collection[str]) -> None:
        for path in paths:
            self.lines.pop(path, None)
            self._blobs.pop(path, None)
            self._written.pop(path, None)

    # ------------------------------------------------------------------ rows and budgets

    def read_rows(self, collection: str, owner: str) -> Rows:
        return self._rows.get((collection, owner), Rows(0, {}))

    def put_rows(
        self, id: str, collection: str, owner: str, put: Mapping[str, str], delete: Collection[str], version: int
    ) -> int:
        if id in self._done:
            known: int = self._done[id]
            return known
        found = self.read_rows(collection, owner)
        if found.version != version:
            raise Changed(f"{collection} has version {found.version} and not {version}")
        rows = {key: text for key, text in found.rows.items() if key not in delete}
        self._rows[collection, owner] = Rows(version + 1, {**rows, **put})
        self._done[id] = version + 1
        self._announce(Notice("rows", f"{collection}/{owner}" if owner else collection))
        return version + 1

    def versions(self, collections: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        return {each: self._rows[each].version for each in collections if each in self._rows}

    def lengths(self, paths: Collection[str]) -> Mapping[str, int]:
        return {path: len(self.lines[path]) for path in paths if path in self.lines}

    def reserve(self, node: int, budget: str, id: str, amount: float, limit: float) -> float | None:
        found = self._budgets.setdefault(budget, _Budget())
        found.reserved = {each: kept for each, kept in found.reserved.items() if self._is_living(kept[0])}
        if id in found.reserved or id in found.settled:
            return None
        if found.spent + sum(kept for _, kept in found.reserved.values()) + amount > limit:
            return found.spent
        found.reserved[id] = node, amount
        return None

    def settle(self, budget: str, id: str, spent: float) -> None:
        found = self._budgets.setdefault(budget, _Budget())
        found.reserved.pop(id, None)
        if id not in found.settled:
            found.settled.add(id)
            found.spent += spent

    # ------------------------------------------------------------------ moving

    def fill(self, mark: str, contents: Iterable[Content]) -> bool:
        if mark == self._mark:
            return True
        if self._written or self._rows or self.inbox or self.outbox or any(map(self._is_living, self._nodes)):
            return False
        self._mark = mark
        for content in contents:
            self._fill(content)
        return True

    def _fill(self, content: Content) -> None:
        match content:
            case Numbers(last_n):
                self._last_n = max(self._last_n, last_n)
            case KnownAddress(address, heard):
                self._seen[address] = heard
            case InboxItem(n, item, done_at):
                self._last_n = max(self._last_n, n)
                self._numbers[item.dedupe] = n
                self.inbox[n] = _Item(item, done_at=done_at)
                self._newest[item.key] = n
                if done_at is None:
                    self._open.setdefault(item.key, {})[n] = self.inbox[n]
            case ReplyNumbers(address, last, acked):
                self.outbox[address] = _Outbox(last=last, acked=acked)
            case PostedReply(key, channel, seq, message, at):
                whole = (
                    from_wire(decode_object(message), OutboundMessage) if message else OutboundMessage("", channel, seq)
                )
                self.outbox[channel.address].replies[seq] = _Posted(attrs.evolve(whole, key=key), at, bool(message))
                self._keys[key] = channel.address, seq
            case FileContents(path, content_bytes, at):
                self._put(path, content_bytes, at)
            case RowsContents(collection, owner, rows):
                self._rows[collection, owner] = Rows(1, rows)

    def contents(self, paths: Collection[str] = ()) -> list[Content]:
        is_wanted = _matcher(paths)
        found: list[Content] = []
        if is_wanted("inbox/"):
            found += [Numbers(self._last_n)]
            found += [KnownAddress(address, heard) for address, heard in self._seen.items()]
            found += [InboxItem(n, each.item, each.done_at) for n, each in sorted(self.inbox.items())]
        if is_wanted("outbox/"):
            for address, outbox in sorted(self.outbox.items()):
                found.append(ReplyNumbers(address, outbox.last, outbox.acked))
                for seq, reply in sorted(outbox.replies.items()):
                    text = encode_json(to_wire(attrs.evolve(reply.message, key=""))) if reply.has_text else ""
                    found.append(PostedReply(reply.message.key, reply.message.channel, seq, text, reply.at))
        found += [
            FileContents(path, self.read(path), self._written[path])
            for path in sorted(self._written)
            if is_wanted(path)
        ]
        found += [
            RowsContents(*name, rows.rows)
            for name, rows in sorted(self._rows.items())
            if is_wanted(rows_path(*name) if name[0] in ROW_FILES else name[0])
        ]
        return found

    # ------------------------------------------------------------------ notices

    def notify(self, notice: Notice) -> None:
        self._announce(notice)


def _matcher(paths: Collection[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a path is one of these names or begins with one; all are if there are none."""
    return lambda path: not paths or any(path.startswith(name) for name in paths)
