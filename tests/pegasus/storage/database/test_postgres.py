"""What is PostgreSQL's own: connections that break, servers that stop, locks, rights, versions of tables, TLS, pgbouncer.

What each method promises is in test_contract.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import pairwise
from random import Random

import psycopg
import pytest
import trio

from pegasus.messages import Address, ChannelInfo, OutboundMessage
from pegasus.storage.database import AcceptedItem, DatabaseDown, DurableStep, NewItem, NewReply, NodeFacts, Notice
from pegasus.storage.database.connection import DatabaseRefused, Pool, fetch
from pegasus.storage.database.examining import look_at_database
from pegasus.storage.database.postgres import Postgres
from pegasus.storage.database.schema import steps
from tests.postgres_server import find_program

pytestmark = pytest.mark.real_time

CHANNEL = ChannelInfo("web", "c1")


def item(n, key="chat/web:c1"):
    return NewItem(key, CHANNEL.address, f"{n:016x}", "{}", "main", 0, 1)


def step(id, after=None, posts=()):
    return DurableStep(id, 1, (), (("x.jsonl", (f"line of {id}",)),), after, tuple(posts))


@asynccontextmanager
async def opened(url, **options):
    database = Postgres(url, **options)
    try:
        yield database
    finally:
        await database.aclose()


@pytest.fixture
async def database(postgres_url):
    async with opened(postgres_url) as database:
        yield database


@contextmanager
def holding(url, statement):
    """Hold the locks of a statement."""
    with psycopg.connect(url) as connection:
        connection.execute(statement)
        yield


async def until(condition):
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110  (the server tells nobody)
            await trio.sleep(0.01)


def connections(server, url, rest=""):
    name = url.rpartition("/")[2]
    return server.execute(f"select count(*) from pg_stat_activity where datname = '{name}' {rest}")[0][0]


# ------------------------------------------------------------------ connections


async def test_a_pool_opens_no_more_connections_than_it_may_and_uses_them_again(postgres_server):
    url = postgres_server.database()
    pool = Pool(url, most=3)
    results = []

    async def count(n):
        results.extend(await pool.run(lambda connection: fetch(connection, "select %s::int, pg_sleep(0.01)", n)))

    async with trio.open_nursery() as nursery:
        for n in range(20):
            nursery.start_soon(count, n)
    assert sorted(n for n, _ in results) == list(range(20))
    assert connections(postgres_server, url) == 3
    pool.close()
    with pytest.raises(DatabaseDown, match="are closed"):
        await pool.run(lambda connection: fetch(connection, "select 1"))
    await until(lambda: not connections(postgres_server, url))


@pytest.mark.tried("databases", "several hosts in the address", "one that says nothing does not hide the next one")
async def test_a_host_that_says_nothing_does_not_hide_the_next_one(postgres_server, postgres_url):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{postgres_server.port}"
        url = postgres_url.replace(f"127.0.0.1:{postgres_server.port}", hosts)
        async with opened(f"{url}?connect_timeout=2", patience=0.5) as database:
            with trio.fail_after(15):
                while True:
                    with suppress(DatabaseDown):
                        assert await database.register(NodeFacts("a"), 5)
                        break


async def test_a_call_that_is_cancelled_leaves_no_connection_behind_that_another_would_get(
    postgres_server, postgres_url, database
):
    await database.accept(1, item(1), 9)
    with holding(postgres_url, "select * from pegasus.owned for update"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(database.accept, 1, item(2), 9)
            await until(lambda: connections(postgres_server, postgres_url, "and wait_event_type = 'Lock'"))
            nursery.cancel_scope.cancel()
    assert (await database.accept(1, item(3), 9)).duplicate is False


async def test_a_lock_that_is_held_too_long_is_an_error_for_an_operator(postgres_url, database):
    await database.accept(1, item(1), 9)
    async with opened(postgres_url, patience=0.3) as impatient:
        with (
            holding(postgres_url, "select * from pegasus.owned for update"),
            pytest.raises(DatabaseDown, match="does not answer"),
        ):
            await impatient.accept(1, item(2), 9)
        assert isinstance(await impatient.accept(1, item(2), 9), AcceptedItem)


async def test_much_may_take_longer_than_an_answer_may(postgres_url):
    content = bytes(range(256)) * 40_000
    async with opened(postgres_url, patience=1) as database:
        await database.replace("media/x.bin", content, 1, None)
        assert await database.read("media/x.bin") == content


# ------------------------------------------------------------------ a server that goes away


async def test_a_restart_between_two_calls_is_not_noticed(postgres_server, database):
    await database.commit(step("1", after=0))
    postgres_server.restart()
    await database.commit(step("2", after=1))
    assert await database.lengths(["x.jsonl"]) == {"x.jsonl": 2}


async def test_a_server_that_is_stopped_is_an_error_without_the_password_until_it_is_back(
    postgres_server, postgres_url
):
    url = postgres_url.replace("agent@", "agent:secret-word@")
    async with opened(url, patience=1) as database:
        await database.commit(step("1", after=0))
        postgres_server.stop()
        with pytest.raises(DatabaseDown, match=r"cannot be reached.*refused") as caught:
            await database.commit(step("2", after=1))
        assert "secret-word" not in str(caught.value)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.to_thread.run_sync, postgres_server.start))
            with trio.fail_after(20):
                while True:
                    with suppress(DatabaseDown):
                        await database.commit(step("2", after=1))
                        break
        assert await database.lengths(["x.jsonl"]) == {"x.jsonl": 2}


@pytest.mark.tried("databases", "PostgreSQL 15, stopped at once and recovered", "each step once")
async def test_steps_are_whole_and_done_once_through_crashes_of_the_server(postgres_server, database):
    """Every call is repeated until it is answered. Some of those whose answer was lost were done."""
    done = trio.Event()

    async def commit():
        for n in range(60):
            asked = step(str(n), n, [NewReply(f"k{n}", OutboundMessage("hi", CHANNEL, 0), 1)])
            while True:
                with suppress(DatabaseDown):
                    [reply] = await database.commit(asked)
                    break
            assert reply.message.seq == n + 1
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit)
        for _ in range(2):
            await trio.to_thread.run_sync(postgres_server.restart, "immediate")
        await done.wait()
    assert len((await database.read_lines({"x.jsonl": 0}))["x.jsonl"]) == 60


async def test_a_server_that_does_not_answer_is_an_error_in_time_and_the_call_may_be_repeated(
    postgres_server, postgres_url
):
    async with opened(postgres_url, patience=1) as database:
        await database.commit(step("1", after=0))
        postgres_server.signal(signal.SIGSTOP)
        try:
            with trio.fail_after(5), pytest.raises(DatabaseDown, match="does not answer"):
                await database.commit(step("2", after=1))
        finally:
            postgres_server.signal(signal.SIGCONT)
        await database.commit(step("2", after=1))
        assert (await database.read_lines({"x.jsonl": 0}))["x.jsonl"] == ["line of 1", "line of 2"]


async def test_notices_are_heard_again_after_a_restart(postgres_server, database):
    heard = []

    async def listen():
        while True:
            try:
                heard.extend(await database.next_notices())
            except DatabaseDown:
                heard.append("down")

    async def hear(notice):
        with trio.fail_after(20):
            while notice not in heard:
                await database.notify(notice)
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await hear(Notice("say", '{"n":1} é'))
        await trio.to_thread.run_sync(postgres_server.restart)
        await hear(Notice("say", '{"n":2}'))
        assert "down" in heard
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("state", "words"),
    [("53100", "its disk is full"), ("58030", "cannot read or write its disk"), ("53200", "out of memory")],
)
async def test_an_error_of_the_server_is_a_sentence_for_an_operator(postgres_url, state, words):
    pool = Pool(postgres_url)
    failing = f"do $$ begin raise exception 'could not extend' using errcode = '{state}'; end $$"
    with pytest.raises(DatabaseDown, match=f"{words}.*could not extend"):
        await pool.run(lambda connection: fetch(connection, failing))
    pool.close()


async def test_a_server_that_is_read_only_reads_and_refuses_to_write(postgres_url, database):
    await database.commit(step("1", after=0))
    async with opened(f"{postgres_url}?options=-c%20default_transaction_read_only%3Don") as replica:
        assert await replica.read("x.jsonl") == b"line of 1\n"
        with pytest.raises(DatabaseDown, match="it is read-only"):
            await replica.commit(step("2", after=1))
    async with opened(postgres_url) as other:
        # The server that it is connected to becomes a replica, and another one has taken over: a new connection is made.
        await other.commit(step("2", after=1))
        for connection in other._pool._idle:
            await connection.execute("set default_transaction_read_only = on")
        with suppress(DatabaseDown):
            await other.commit(step("3", after=2))
        await other.commit(step("3", after=2))
    assert await database.lengths(["x.jsonl"]) == {"x.jsonl": 3}


async def test_too_many_connections_are_an_error_that_passes(postgres_server, postgres_url, database):
    await database.prepare()
    postgres_server.execute("create role few login connection limit 0")
    async with opened(postgres_url.replace("agent@", "few@"), patience=0.3) as other:
        with pytest.raises(DatabaseDown, match="raise its max_connections, or run fewer nodes"):
            await other.nodes()


# ------------------------------------------------------------------ transactions that meet


@pytest.mark.parametrize(
    "isolation",
    [
        pytest.param(name, marks=pytest.mark.tried("databases", f"isolation: {name}", "each key is taken once"))
        for name in ("read committed", "serializable")
    ],
)
async def test_nodes_that_race_take_each_due_key_once_and_lose_no_item(postgres_url, isolation):
    url = f"{postgres_url}?options=-c%20default_transaction_isolation%3D{isolation.replace(' ', '%5C%20')}"
    async with (
        opened(url, patience=30, random=Random(1)) as first,
        opened(url, patience=30, random=Random(2)) as second,
    ):
        nodes = [await database.register(NodeFacts(name), 30) for database, name in ((first, "a"), (second, "b"))]
        keys = [f"chat/web:{n}" for n in range(12)]
        taken = []

        async def accept(database, numbers):
            for n in numbers:
                await database.accept(0, item(n, keys[n % 12]), 1000)

        async def take(database, node):
            while len(taken) < len(keys):
                taken.extend(await database.take(node, ["chat"], 3))

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(accept, first, range(48))
                nursery.start_soon(accept, second, range(24, 72))  # half of them for the second time
                nursery.start_soon(take, first, nodes[0])
                nursery.start_soon(take, second, nodes[1])
        assert sorted(lease.owner for lease in taken) == sorted(keys)
        assert {lease.token for lease in taken} == {1}
        assert await first.waiting(None, None, None, None) == 72


@pytest.mark.parametrize("error", [psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected])
async def test_a_transaction_that_meets_others_is_made_again_after_growing_pauses(postgres_url, monkeypatch, error):
    pool = Pool(postgres_url, random=Random(1))
    monkeypatch.setattr("pegasus.storage.database.connection._MOST_REPEATS", 6)
    begun = []

    async def meet(connection, times):
        begun.append(trio.current_time())
        if len(begun) <= times:
            raise error("it met another one")
        return "done"

    assert await pool.run(partial(meet, times=6)) == "done"
    for n, (before, after) in enumerate(pairwise(begun)):
        assert after - before >= 0.8 * 0.002 * 2**n
    begun.clear()
    with pytest.raises(DatabaseDown, match="it met another one"):
        await pool.run(partial(meet, times=7))
    assert len(begun) == 7
    pool.close()


# ------------------------------------------------------------------ tables


async def test_processes_that_start_at_the_same_time_make_one_set_of_tables(postgres_url):
    async with opened(postgres_url) as first, opened(postgres_url) as second, trio.open_nursery() as nursery:
        nursery.start_soon(first.prepare)
        nursery.start_soon(second.prepare)


async def test_a_newer_version_waits_for_the_last_node_that_does_not_know_it_and_is_refused_by_an_older_program(
    postgres_server, postgres_url
):
    newer = (*steps(), "alter table pegasus.node add column colour text")
    version = partial(postgres_server.execute, "select number from pegasus.version", url=postgres_url)
    async with opened(postgres_url) as old:
        node = await old.register(NodeFacts("old"), 30)
        async with opened(postgres_url, versions=newer) as new:
            await new.register(NodeFacts("new"), 30)
            assert version() == [(1,)]
        await old.leave(node)
    async with opened(postgres_url, versions=newer) as new:
        await new.prepare()
        assert version() == [(2,)]
    async with opened(postgres_url) as old:
        with pytest.raises(DatabaseRefused, match="version 2, and this program knows 1: start a newer program"):
            await old.nodes()


async def test_what_is_old_is_forgotten_and_what_counts_is_not(postgres_server, postgres_url, database):
    numbers = [(await database.accept(1, item(n), 9)).n for n in range(3)]
    await database.commit(step("1", posts=[NewReply(f"k{n}", OutboundMessage("hi", CHANNEL, 0), 1) for n in range(2)]))
    await database.note([(numbers[0], None, 7), (numbers[1], None, 7)], {CHANNEL.address: 1})
    postgres_server.execute(
        "update pegasus.item set done_at = 1 where done_at is not null",
        f"select setval('pegasus.item_numbers', {numbers[0] + 50_000})",
        "update pegasus.request set at = now() - interval '2 days'",
        url=postgres_url,
    )
    await database.accept(1, item(9), 9)  # 50,000 messages after the first one
    await database.newest_items(1)
    left = partial(postgres_server.execute, url=postgres_url)
    assert [n for (n,) in left("select n from pegasus.item order by n")][:2] == numbers[1:]
    assert left("select key from pegasus.reply") == [("k1",)]
    assert left("select count(*) from pegasus.request") == [(0,)]


async def test_a_database_of_another_encoding_is_refused(postgres_server):
    url = postgres_server.database("template template0 encoding 'SQL_ASCII'")
    async with opened(url) as database:
        with pytest.raises(DatabaseRefused, match="encoding SQL_ASCII; allowed: UTF8"):
            await database.nodes()


async def test_a_user_without_rights_is_told_what_to_grant_and_that_is_enough(postgres_server, postgres_url):
    url = postgres_url.replace("agent@", "locked:right%20pass-word@")
    async with opened(url) as database:
        with pytest.raises(DatabaseRefused, match='the user "locked" has too few rights') as caught:
            await database.nodes()
        assert "pass-word" not in str(caught.value)
        grant = str(caught.value).partition("Let its owner run: ")[2].partition("; and,")[0]
        postgres_server.execute(grant, url=postgres_url)
        assert await database.register(NodeFacts("a"), 5) == 1


async def test_tables_of_another_program_are_refused_and_not_waited_for(postgres_server, postgres_url):
    async with opened(postgres_url) as database:
        await database.register(NodeFacts("a"), 5)
        postgres_server.execute("drop function pegasus.leave", url=postgres_url)
        with pytest.raises(DatabaseRefused, match=r"not those that this program makes: .*leave.* does not exist"):
            await database.leave(1)
        postgres_server.execute("drop schema pegasus cascade", url=postgres_url)
        with pytest.raises(DatabaseRefused, match='schema "pegasus" does not exist'):
            await database.leave(1)


# ------------------------------------------------------------------ libpq's own means


@pytest.mark.tried("databases", "`PGPASSFILE`", "the password is read from it")
async def test_a_wrong_password_is_refused_without_it_and_a_file_of_passwords_is_read(
    postgres_url, monkeypatch, tmp_path
):
    locked = postgres_url.replace("agent@", "locked@")
    async with opened(locked.replace("locked@", "locked:wrong-word@")) as database:
        with pytest.raises(DatabaseRefused, match="password authentication failed") as caught:
            await database.nodes()
        assert "wrong-word" not in str(caught.value)
    passwords = tmp_path / "pgpass"
    passwords.write_text("127.0.0.1:*:*:locked:right pass-word\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    pool = Pool(locked)
    assert await pool.run(lambda connection: fetch(connection, "select current_user")) == [("locked",)]
    pool.close()


async def test_rights_and_passwords_that_are_changed_under_way_are_waited_for(postgres_server, postgres_url):
    url = postgres_url.replace("agent@", "turning:first@")
    postgres_server.execute(
        "create role turning login password 'first'", "grant create on database postgres to turning"
    )
    rules = postgres_server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("host all turning 127.0.0.1/32 scram-sha-256\n" + before)
    end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'turning'"

    async def read():
        with trio.fail_after(10):
            while True:
                with suppress(DatabaseDown):
                    return await database.read("x.jsonl")

    try:
        postgres_server.execute("select pg_reload_conf()")
        async with opened(url, patience=0.5) as database:
            await database.commit(step("1", after=0))
            for take, give, words in (
                (
                    "alter role turning password 'second'",
                    "alter role turning password 'first'",
                    "password authentication",
                ),
                ("alter role turning nologin", "alter role turning login", "not permitted to log in"),
                (
                    "revoke all on pegasus.line from turning; alter table pegasus.line owner to agent",
                    "grant all on pegasus.line to turning",
                    "too few rights",
                ),
            ):
                postgres_server.execute(take, end, url=postgres_url)
                await until(lambda: not connections(postgres_server, postgres_url, "and usename = 'turning'"))
                with pytest.raises(DatabaseDown, match=words):
                    await database.read("x.jsonl")
                postgres_server.execute(give, url=postgres_url)
                assert await read() == b"line of 1\n"
    finally:
        rules.write_text(before)
        postgres_server.execute(
            "select pg_reload_conf()", "drop schema pegasus cascade", "drop owned by turning", "drop role turning"
        )


@pytest.mark.tried("databases", "TLS with `sslmode=verify-full`", "the certificate is checked")
async def test_the_certificate_of_the_server_is_checked(postgres_server, postgres_url, tmp_path):
    wanted = f"{postgres_url}?sslmode=verify-full&sslrootcert="
    trusted = Pool(f"{wanted}{postgres_server.certificate}")
    statement = "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
    assert await trusted.run(lambda connection: fetch(connection, statement)) == [(True,)]
    trusted.close()
    other = tmp_path / "other.crt"
    other.write_bytes(b"")
    distrusting = Pool(f"{wanted}{other}", patience=1)
    with pytest.raises(DatabaseRefused, match="certificate"):
        await distrusting.run(lambda connection: fetch(connection, statement))
    distrusting.close()


async def test_a_certificate_that_is_changed_under_way_is_waited_for(postgres_server, postgres_url, tmp_path):
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(postgres_server.certificate.read_bytes())
    end = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'"
    async with opened(f"{postgres_url}?sslmode=verify-full&sslrootcert={trusted}", patience=0.5) as database:
        await database.commit(step("1", after=0))
        postgres_server.change_certificate()
        words = ""
        with trio.fail_after(10):
            while "certificate" not in words:
                postgres_server.execute(end)
                try:
                    await database.read("x.jsonl")
                except DatabaseDown as error:
                    words = str(error)
        with pytest.raises(DatabaseDown, match="certificate"):
            await database.next_notices()
        trusted.write_bytes(postgres_server.certificate.read_bytes())
        with trio.fail_after(10):
            while True:
                with suppress(DatabaseDown):
                    assert await database.read("x.jsonl") == b"line of 1\n"
                    break


def test_doctor_sees_that_a_primary_is_read_only(postgres_url):
    setting = "?options=-c%20default_transaction_read_only%3D"
    assert [look_at_database(f"{postgres_url}{setting}{value}").is_read_only for value in ("on", "off")] == [
        True,
        False,
    ]


async def test_doctor_sees_what_no_node_could_use(postgres_server, postgres_url):
    assert (
        "SQL_ASCII; allowed: UTF8"
        in look_at_database(postgres_server.database("template template0 encoding 'SQL_ASCII'")).refusal
    )
    taken = postgres_server.database()
    postgres_server.execute("create schema pegasus", "create table pegasus.item (n int)", url=taken)
    assert "tables of another program" in look_at_database(taken).refusal
    async with opened(taken) as database:
        with pytest.raises(DatabaseRefused, match="tables of another program; name another database"):
            await database.nodes()
    async with opened(postgres_url) as database:
        await database.nodes()
    postgres_server.execute(
        "grant usage on schema pegasus to locked",
        "grant select, insert, update, delete on all tables in schema pegasus to locked",
        "revoke delete on pegasus.line from locked",
    )
    locked = postgres_url.replace("agent@", "locked:right%20pass-word@")
    assert (look_at_database(postgres_url).may_write, look_at_database(locked).may_write) == (True, False)


@pytest.mark.parametrize("use", [Postgres, look_at_database])
@pytest.mark.parametrize(
    "rest",
    [
        "u:secret-word@[::1/x",
        "u:secret-word@h/x?nonsense=1",
        "%zz:secret-word@h",
        "u:secret-word x@h",
        "u:secret-word/x@h",
        "u:x@secret-word@h",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_it(rest, use):
    with pytest.raises(DatabaseRefused, match="is not an address that libpq understands") as caught:
        use(f"postgresql://{rest}")
    assert "secret-word" not in str(caught.value)


@pytest.mark.tried("databases", "pgbouncer in session mode", "works, with notices")
async def test_it_works_behind_pgbouncer_in_session_mode(postgres_server, postgres_url, tmp_path):
    program = find_program("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed (Debian: apt install pgbouncer)")
    async with _pgbouncer(program, postgres_server, postgres_url) as url, opened(url) as database:
        node = await database.register(NodeFacts("a"), 30)
        assert await database.accept(node, item(1), 9) == AcceptedItem(1)
        [reply] = await database.commit(step("1", 0, [NewReply("k", OutboundMessage("hi", CHANNEL, 0), 1)]))
        assert reply.message.seq == 1
        async with trio.open_nursery() as nursery:

            async def notify():
                while True:
                    await database.notify(Notice("say", "{}"))
                    await trio.sleep(0.01)

            nursery.start_soon(notify)
            assert await database.next_notices() == ()
            assert (await database.next_notices())[0] == Notice("say", "{}")
            nursery.cancel_scope.cancel()
        assert await database.numberings([Address("web", "c1")])


@pytest.mark.tried("databases", "pgbouncer in transaction mode", "is refused with a sentence")
async def test_pgbouncer_in_another_mode_is_refused(postgres_server, postgres_url):
    program = find_program("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed (Debian: apt install pgbouncer)")
    async with _pgbouncer(program, postgres_server, postgres_url, "transaction") as url, opened(url) as database:
        with pytest.raises(DatabaseRefused, match="let it work in session mode"):
            await database.nodes()
        assert "let it work in session mode" in look_at_database(url).refusal


@asynccontextmanager
async def _pgbouncer(program, server, url, mode="session"):
    """Run pgbouncer before a database; yield the address through it."""
    name = url.rpartition("/")[2]
    with server.beside() as (port, folder, user):
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n{name} = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nauth_type = trust\nauth_file = {folder}/users\npool_mode = {mode}\nunix_socket_dir =\n"
        )
        (folder / "users").write_text('"agent" ""\n')
        process = subprocess.Popen([program, str(settings)], stderr=subprocess.DEVNULL, **user)  # noqa: ASYNC220
        try:
            through = f"postgresql://agent@127.0.0.1:{port}/{name}"
            with trio.fail_after(20):
                while True:
                    with suppress(psycopg.OperationalError), psycopg.connect(through):
                        break
                    await trio.sleep(0.01)
            yield through
        finally:
            process.terminate()
            process.wait()
