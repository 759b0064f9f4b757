"""What mypy knows of the public names; checked by test_typing.py, never run.

The ignored errors are wanted: mypy --strict complains about an `ignore` that ignores nothing.
"""

from __future__ import annotations

from typing import Never, assert_type

import attrs

from actors import Answer, Child, Down, Inbox, Ref, Reply, open_pool, open_supervisor, supervisor, watch


@attrs.frozen
class Add:
    amount: int


@attrs.frozen
class Total:
    reply: Reply[int]
    label: str
    rounded: bool = False


@attrs.frozen
class Find:
    reply: Reply[str | None]


async def counter(inbox: Inbox[Add | Total], start: int = 0) -> None:
    async for message in inbox:
        assert_type(message, Add | Total)
        match message:
            case Add(amount):
                assert_type(amount, int)
            case Total(reply):
                reply.send(1)
                reply.send("one")  # type: ignore[arg-type]
    assert_type(inbox.receive_nowait(), Add | Total)
    assert_type(inbox.ref, Ref[Add | Total])


async def finder(inbox: Inbox[Find]) -> None:
    assert_type(await inbox.receive(), Find)


async def asks(ref: Ref[Add | Total]) -> None:
    assert_type(await ref.ask(Total, "x"), int)
    assert_type(await ref.ask(Total, "x", True, timeout=1), int)
    assert_type(await ref.request(Total, "x"), Answer[int])
    assert_type(await (await ref.request(Total, "x")).get(timeout=1), int)
    await ref.ask(Total, 3)  # type: ignore[arg-type]
    await ref.ask(Find)  # type: ignore[arg-type]
    await ref.tell(Add(1))
    await ref.tell("one")  # type: ignore[arg-type]


async def trees(only_adds: Ref[Add]) -> None:
    children: list[Child[Never]] = [
        Child("counter", counter),
        Child("counter2", counter, 3, shutdown=1),
        Child("finder", finder),
    ]
    Child("counter", counter, "three")  # type: ignore[arg-type]
    async with open_supervisor([*children, Child("more", supervisor(children))]) as root:
        ref: Ref[Add | Total] = root.ref("counter")
        only_adds = ref  # who takes more takes less
        wants_more: Ref[Add | Find] = ref  # type: ignore[assignment]
        started = await root.start_child(Child("counter3", counter))
        assert_type(started, Ref[Add | Total])
        assert_type(await watch(started), Down)
        await asks(wants_more)  # type: ignore[arg-type]
    async with open_pool() as pool:
        assert_type(await pool.start_child(Child("finder", finder)), Ref[Find])
    found = await (await pool.start_child(Child("finder", finder))).ask(Find)
    assert_type(found, str | None)
    await only_adds.tell(Add(1))
