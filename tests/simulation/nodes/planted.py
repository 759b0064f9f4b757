"""Faults to be planted in the engine, in the tables or in what runs on a node: a life must find each of them.

Several of the promises are kept twice over, by the engine and by the database, or by the token and by the number of lines. A fault
that one of both hides is planted in both, so that it shows which promise is broken and not that there is a second guard.
"""

from __future__ import annotations

import math

import attrs
import trio

from pegasus.storage import Lease, LeaseLost, chat_owner
from pegasus.storage.database import AcceptedItem, StoredReply
from pegasus.storage.database.calls import Lookout
from pegasus.storage.database.items import OwnedItems
from pegasus.storage.database.node import NodeLease
from pegasus.storage.database.notes import Notes
from pegasus.storage.database.ownership import Ownership
from pegasus.storage.database.replies import FollowedReplies
from pegasus.storage.item_queue import ItemQueue
from pegasus.testing.memory_tables import MemoryTables, _Outbox, _Owned


def commit_without_a_look_at_the_token(monkeypatch):
    monkeypatch.setattr(MemoryTables, "_check", lambda tables, *leases: None)
    monkeypatch.setattr(MemoryTables, "_has_lines", lambda tables, step: False)


def complete_what_is_handed_out(monkeypatch):
    """An item is done for the database when an agent gets it, whatever becomes of the agent."""

    def hand_out(queue, item):
        real(queue, item)
        queue.on_handed_out(item)

    real = ItemQueue.hand_out
    make = OwnedItems.__init__

    def init(items, *args, **options):
        make(items, *args, **options)
        items.queue.on_handed_out = lambda item: items._notes.complete(item.n, None, 0)

    monkeypatch.setattr(OwnedItems, "__init__", init)
    monkeypatch.setattr(ItemQueue, "hand_out", hand_out)


def take_without_a_new_token(monkeypatch):
    def give(tables, key, node):
        owned = tables._owned.setdefault(key, _Owned(token=1))
        owned.owner = node
        return Lease(key, owned.token)

    monkeypatch.setattr(MemoryTables, "_give", give)
    monkeypatch.setattr(MemoryTables, "_has_lines", lambda tables, step: False)


def take_what_a_living_node_owns(monkeypatch):
    monkeypatch.setattr(MemoryTables, "_owner", lambda tables, key: None)


def number_replies_outside_of_the_transaction(monkeypatch):
    """The number is that of a moment before, as of a query that has no lock."""

    def post(tables, key, message, at):
        address = message.channel.address
        outbox = tables.outbox.setdefault(address, _Outbox())
        now = trio.current_time()
        before = [seq for seq, reply in outbox.replies.items() if numbered[address, seq] < now - 0.002]
        if before and outbox.last not in before and key not in tables._keys:
            outbox.last = max(before)
        stored: StoredReply = real(tables, key, message, at)
        numbered.setdefault((address, stored.message.seq), now)
        return stored

    numbered = {}
    real = MemoryTables._post
    monkeypatch.setattr(MemoryTables, "_post", post)


def accept_whatever_comes_again(monkeypatch):
    def accept(tables, node, item, max_waiting):
        tables._numbers.pop(item.dedupe, None)
        answer: AcceptedItem = real(tables, node, item, max_waiting)
        return answer

    real = MemoryTables.accept
    monkeypatch.setattr(MemoryTables, "accept", accept)


def renew_a_lease_that_has_ended(monkeypatch):
    def renew(tables, node, lease, settings=""):
        if node in tables._nodes:
            tables._nodes[node].until = max(tables._nodes[node].until, trio.current_time() + lease)
        return real(tables, node, lease, settings)

    real = MemoryTables.renew
    monkeypatch.setattr(MemoryTables, "renew", renew)
    monkeypatch.setattr(NodeLease, "is_alive", property(lambda node: node.id != 0))
    act_after_the_own_deadline(monkeypatch)


def act_after_the_own_deadline(monkeypatch):
    """The node believes in its lease until the database says that it has ended."""

    async def renew_until_lost(node):
        while True:
            await trio.sleep_until(node._sent + node._lease / 3)
            sent = trio.current_time()
            renewal = await node._calls.until_done(lambda: node._database.renew(node.id, node._lease), waits=False)
            if renewal is None:
                return
            node._sent, node._until = sent, math.inf

    monkeypatch.setattr(NodeLease, "_renew_until_lost", renew_until_lost)


def believe_in_a_lease_that_comes_too_late(monkeypatch):
    """Its registration has ended by the time of the answer, and another node owns the key."""

    async def claim(items, node, key):
        lease = await items._calls.until_done(lambda: items._database.claim(node.id, key))
        if lease is None:
            raise LeaseLost(key)
        if items.ownership.gain(lease):
            await items._load([key])
        return lease

    monkeypatch.setattr(OwnedItems, "_claim", claim)


def do_a_repeated_step_again(monkeypatch):
    """Neither the id of the step nor its number of lines is looked at."""

    def commit(tables, step):
        tables._done.pop(step.id, None)
        return real(tables, attrs.evolve(step, after=None))

    real = MemoryTables.commit
    monkeypatch.setattr(MemoryTables, "commit", commit)


def load_items_before_the_take(monkeypatch):
    """What comes between the two is not looked for later."""

    monkeypatch.setattr(MemoryTables, "newest_items", lambda tables, node: {})


def acknowledge_before_the_delivery(monkeypatch):
    def hand_on(replies, reply, *, is_wanted=True):
        real(replies, reply, is_wanted=is_wanted)
        replies._notes.acknowledge(reply.channel.address, reply.seq)

    real = FollowedReplies._hand_on
    monkeypatch.setattr(FollowedReplies, "_hand_on", hand_on)


def rely_on_notices(monkeypatch):
    monkeypatch.setattr(Lookout, "LOOK", 1000.0)


def give_back_whatever_the_token(monkeypatch):
    def give_back(tables, node, leases):
        real(tables, node, [Lease(lease.owner, tables._owned[lease.owner].token) for lease in leases])

    async def release(items, node, leases):
        await items._notes.flush()
        items.ownership.lose([lease.owner for lease in leases])
        await items._calls.until_done(lambda: items._database.give_back(node.id, leases))

    real = MemoryTables.give_back
    monkeypatch.setattr(MemoryTables, "give_back", give_back)
    monkeypatch.setattr(OwnedItems, "_release", release)


def forget_notes_that_were_not_written(monkeypatch):
    async def flush(notes):
        done, notes._done = notes._done, {}
        acknowledged, notes._acknowledged = notes._acknowledged, {}
        if done or acknowledged:
            await notes._database.note(tuple((n, *end) for n, end in done.items()), acknowledged)

    monkeypatch.setattr(Notes, "flush", flush)


def leave_lost_chats_their_agents(monkeypatch):
    def watch_chats(ownership, query):
        ownership.running = frozenset(map(chat_owner, query.running))
        unanswered.append(query)

    unanswered = []
    monkeypatch.setattr(Ownership, "watch_chats", watch_chats)


PLANTED = {
    commit_without_a_look_at_the_token: 122,
    complete_what_is_handed_out: 0,
    take_without_a_new_token: 253,
    take_what_a_living_node_owns: 0,
    number_replies_outside_of_the_transaction: 0,
    accept_whatever_comes_again: 0,
    renew_a_lease_that_has_ended: 59,
    act_after_the_own_deadline: 59,
    believe_in_a_lease_that_comes_too_late: 82,
    do_a_repeated_step_again: 10,
    load_items_before_the_take: 2,
    acknowledge_before_the_delivery: 9,
    rely_on_notices: 19,
    give_back_whatever_the_token: 357,
    forget_notes_that_were_not_written: 10,
    leave_lost_chats_their_agents: 55,
}
"""Each fault with a seed whose life finds it. After a change of the engine or of the stories it may be a later one."""
