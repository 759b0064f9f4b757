"""Chat of one person at a screen: `InteractiveChat` sends what is typed to the conversation, and shows the conversation's events.

Two threads take part. Trio's thread owns the conversation and all state of `InteractiveChat`. The screen runs
prompt_toolkit on an asyncio loop in a thread of its own (see `screen`), because the two loops cannot share one. They meet
in two places only: methods of the screen may be called from any thread and return at once; what the user does is handed
to Trio's thread with `run_sync_soon`.

A reply is acknowledged when the next event is asked for, and the next event is asked for when the reply has been drawn.
So a chat that is killed while it prints gets the same reply again the next time.

Leaving waits for two things, each with a bound: typed messages that are not accepted yet (ACCEPT_SECONDS), because a person
who types a message and leaves expects it to be sent; and the screen's thread (CLOSE_SECONDS), because the terminal's modes must
be restored before the shell's prompt appears. What was not accepted in time is named, and stays in the history.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from actors import Signal
from pegasus.access import end_text, question_text
from pegasus.client import (
    ClientError,
    Conversation,
    ConversationEvent,
    MessageAccepted,
    MessageRejected,
    Offline,
    Online,
)
from pegasus.formatting import format_usage
from pegasus.host import wall_clock
from pegasus.intake import describe_unknown, find_unknown
from pegasus.messages import (
    IN_REPLY_TO,
    ApprovalNotice,
    FileEdit,
    Media,
    OutboundMessage,
    ReplyDraft,
    Said,
    TaskProgress,
    Typing,
)
from pegasus.protocol import STOPPING
from pegasus.terminal.completion import Suggestions, ask_suggestions
from pegasus.terminal.greeting import ChatConfig, gone_text, greeting
from pegasus.terminal.leaving import Leave, count_other_clients
from pegasus.terminal.line_chat import DaemonGone, describe_rejection
from pegasus.terminal.prompt_rules import STOP_ALL, ScreenListener, meant_instead
from pegasus.terminal.questions import waiting_question
from pegasus.terminal.status_line import ChatStatus, Draft, RunningTask, in_order, is_asking, running_task
from pegasus.terminal.tty import neutralise, restore_terminal
from pegasus.terminal.typed_messages import TypedMessages, is_nothing_waiting

if TYPE_CHECKING:  # imports prompt_toolkit and rich
    from pegasus.terminal.screen import Screen

ACCEPT_SECONDS: Final = 2.0
"""Seconds that leaving waits for the messages just typed to be accepted."""
STOP_SECONDS: Final = 6.0
"""Seconds that leaving waits for the agent to stop its work, a second more than the agent waits for it."""
ENDED_SECONDS: Final = 0.5
"""Seconds after the end of a turn until the agent is asked whether anything waits: by then the next turn has usually begun."""
FRESH_SECONDS: Final = 5.0
"""Seconds for which that counts as up to date, when somebody begins to type a command."""
CLOSE_SECONDS: Final = 2.0
"""Seconds a screen may take to end; one that hangs in a write is abandoned, and the terminal restored without it."""


MakeScreen: TypeAlias = "Callable[[ScreenListener], Screen]"
"""Constructor of a screen from the functions that it calls from its thread."""


class InteractiveChat:
    """Chat of one person at one screen. Make it inside trio.run, and call `run` once."""

    def __init__(self, conversation: Conversation, make_screen: MakeScreen, config: ChatConfig) -> None:
        self._config = config
        self._conversation = conversation
        self._events = aiter(conversation)
        self._token = trio.lowlevel.current_trio_token()
        """Way from the screen's thread into Trio's."""
        self._is_asking = False
        """The agent is asked whether anything waits."""
        self._left = trio.Event()
        """Set when the user leaves, the screen has ended, or the daemon has refused for good."""
        self._all_accepted = Signal()
        """Set whenever no typed message waits for being accepted; replaced by `_wait_accepted`."""
        self._agent = "Pegasus"
        """Name of the agent, from the gateway's welcome."""
        self._status = ChatStatus()
        """Facts that the status line shows at present."""
        self._questions: dict[str, ApprovalNotice] = {}
        """Approvals that wait for an answer, by id, oldest first."""
        self._asked: dict[str, str] = {}
        """The text of each question that was printed, by the id of its approval."""
        self._tasks: dict[str, RunningTask] = {}
        """Tasks that run or wait for their turn, by id."""
        self._asking: dict[str, RunningTask] = {}
        """Tasks that wait for an answer in words, by id."""
        self._drafting = False
        """The screen shows a draft."""
        self._offline_reason = ""
        """Reason of the last failed or lost connection, for DaemonGone."""
        self._was_stopped = False
        """The last connection ended because the agent was stopped."""
        self._refused = False
        """There will be no other attempt to connect."""
        self._online = trio.Event()
        """Set by each welcome."""
        self._leave = Leave.LEAVE
        """Decision of the user about the agent."""
        self._last_question = ""
        """Id of the message that the last reply has answered."""
        self._replies = 0
        """Replies that were shown."""
        self._status_changed = Signal()
        """Set at each change of the status and each reply; replaced by who waits for it."""
        self._suggestions = Suggestions()
        """Names that the agent understands."""
        self._suggested_at = -math.inf
        """Time at which it said so, on Trio's clock."""
        self._checked: list[str] = []
        """Typed texts for which the agent is asked whether there is such a command."""
        listener = ScreenListener(
            partial(self._post, self._take),
            partial(self._post, self._begin_leaving),
            partial(self._post, self._on_slash),
            partial(self._post, self._on_leaving),
            partial(self._post, self._begin_interrupt),
        )
        self._screen = make_screen(listener)
        self._typed = TypedMessages(conversation, config.max_frame_bytes, self._screen.notice, self._change_status)
        """Typed messages on their way to the agent."""
        self._unanswered = self._typed.unanswered
        """Messages that were handed over and not answered yet."""

    async def run(self) -> Leave:
        """Chat until the user leaves; return what is to become of the agent. What could not be sent is then in `unsent`.

        Messages typed just before leaving are given ACCEPT_SECONDS to be accepted. Raises DaemonGone if there is no
        daemon at the start or it refuses for good, and what went wrong on the screen. Cancelled, it ends at once. The
        terminal is restored in every case.
        """
        await self._handle(await anext(self._events))
        if not self._status.online:
            raise DaemonGone(self._offline_reason)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._typed.run)
            nursery.start_soon(self._handle_events)
            nursery.start_soon(self._refresh_at_each_connection)
            nursery.start_soon(self._watch_window_size)
            failure = await self._run_screen()
            if failure is None and self._status.online:
                await self._wait_accepted()
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self._refused:
            raise DaemonGone(self._offline_reason)
        return self._leave

    async def _run_screen(self) -> Exception | None:
        """Run the screen in a thread of its own; return when the user has left or the screen has ended.

        Leaving, in whatever way, closes the screen and waits for it, CLOSE_SECONDS at most: a thread that hangs in a write to a
        terminal that does not take it cannot be ended, so it is abandoned and the terminal's modes are restored without it.

        What the screen's thread raised is returned instead of raised: inside the nursery it would arrive wrapped in a group,
        beside cancellations.
        """
        failure: Exception | None = None
        waiting = trio.CancelScope(shield=True)

        async def run() -> None:
            """Run the screen in a thread until it ends, or until the deadline of `waiting`. Keeps its error for the caller."""
            nonlocal failure
            with waiting:
                try:
                    await trio.to_thread.run_sync(self._screen.run, abandon_on_cancel=True)
                except Exception as error:
                    failure = error
            if waiting.cancelled_caught:
                restore_terminal()
            self._left.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            try:
                await self._left.wait()
            finally:
                self._screen.close()
                waiting.deadline = trio.current_time() + CLOSE_SECONDS
        return failure

    async def _wait_accepted(self) -> None:
        """Return when every typed message has been accepted, ACCEPT_SECONDS at the latest."""
        with trio.move_on_after(ACCEPT_SECONDS):
            while self.unsent:
                await self._all_accepted.wait()

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        """Run the callback in Trio's thread, from the screen's. After the end of trio.run it is dropped."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(callback, *args)

    # ---------------------------------------------------------------- sending

    def _take(self, text: str, media: tuple[Media, ...] = ()) -> None:
        """Queue a typed text, unless it is a command that the agent does not know, or one of other programs."""
        if instead := meant_instead(text):
            self._screen.notice(f"Not sent. {instead}")
        elif find_unknown(text, self._suggestions.names) is None or not self._suggestions.commands:
            self._typed.add(text, media)
        else:
            self._checked.append(text)
            self._nursery.start_soon(self._take_when_known, text, media)

    async def _take_when_known(self, text: str, media: tuple[Media, ...]) -> None:
        """Queue a command that exists by now; answer any other here, so that a person need not wait until the agent has time."""
        await self._refresh()
        self._checked.remove(text)
        names = self._suggestions.names
        if name := find_unknown(text, names):
            self._screen.notice(f"Not sent. {describe_unknown(name, names)}")
        else:
            self._typed.add(text, media)

    @property
    def unsent(self) -> tuple[str, ...]:
        """Typed texts that the agent has not accepted yet, in the order in which they would be."""
        return (*self._typed.unsent, *self._checked)

    @property
    def _unsent_count(self) -> int:
        """Number of the texts in `unsent`."""
        return len(self._typed) + len(self._checked)

    # ---------------------------------------------------------------- interrupting

    def _begin_interrupt(self) -> None:
        """End the answer that is being made."""
        self._nursery.start_soon(self._interrupt)

    async def _interrupt(self) -> None:
        """Ask the agent to end the answer, and show what it says about it below what was written of the answer."""
        try:
            receipt = await self._conversation.call("interrupt")
        except ClientError as error:
            self._screen.notice(f"The answer was not ended: {error}")
            return
        text = receipt.get("text") if isinstance(receipt, Mapping) else None
        # The draft and the end of the turn come on their own way.
        with trio.move_on_after(ENDED_SECONDS):
            while self._status.thinking:
                await self._status_changed.wait()
        if isinstance(text, str):
            self._screen.notice(text)

    # ---------------------------------------------------------------- leaving

    def _begin_leaving(self, leave: Leave) -> None:
        """Leave, after the work of this conversation has been stopped if that is wanted."""
        self._leave = leave
        if leave is Leave.STOP:
            self._typed.add(STOP_ALL if len(self._unanswered) > 1 else "/stop")
            self._nursery.start_soon(self._leave_when_stopped)
        else:
            self._left.set()

    def _on_leaving(self) -> None:
        """Find out who else talks with the agent, and have the screen ask or leave."""
        self._nursery.start_soon(self._count_others)

    async def _count_others(self) -> None:
        """Tell the screen how many other chats are connected."""
        self._screen.leave(await count_other_clients(self._conversation))

    async def _leave_when_stopped(self) -> None:
        """Leave when nothing runs any more and the agent has said so, STOP_SECONDS later at the latest."""
        before = self._replies
        with trio.move_on_after(STOP_SECONDS):
            while self._status.thinking or self._status.tasks or self._replies == before:
                await self._status_changed.wait()
        self._left.set()

    # ---------------------------------------------------------------- suggestions

    def _on_slash(self) -> None:
        """Bring the suggestions up to date, unless that was done just now."""
        if trio.current_time() - self._suggested_at > FRESH_SECONDS:
            self._nursery.start_soon(self._refresh)

    async def _refresh_at_each_connection(self) -> None:
        """Ask after each welcome, since the daemon may be another one."""
        while True:
            await self._online.wait()
            self._online = trio.Event()
            await self._refresh()

    async def _refresh(self) -> None:
        """Ask the agent what may be typed. An agent that does not answer, or is of another version, changes nothing."""
        self._suggested_at = trio.current_time()
        if (suggestions := await ask_suggestions(self._conversation)) is not None:
            self._suggestions = attrs.evolve(suggestions, questions=self._question_names())
            self._screen.suggest(self._suggestions)

    # ---------------------------------------------------------------- window

    async def _watch_window_size(self) -> None:
        """Pass SIGWINCH on, which reaches the main thread only."""
        if threading.current_thread() is threading.main_thread():
            with trio.open_signal_receiver(signal.SIGWINCH) as signals:
                async for _ in signals:
                    self._screen.resized()

    # ---------------------------------------------------------------- events

    async def _handle_events(self) -> None:
        """Handle events until the conversation ends, which it does only after a refusal for good."""
        async for event in self._events:
            await self._handle(event)
        self._left.set()

    async def _handle(self, event: ConversationEvent) -> None:
        """Show an event: a reply is printed, a draft is shown above the prompt, all else changes the status line."""
        match event:
            case OutboundMessage():
                await self._show(event)
            case Typing(active=active):
                self._note_thinking(active)
            case ReplyDraft(text=text, cut=True):
                self._drafting = False
                self._screen.cut(self._agent, text)
                self._change_status(writing=False)
            case ReplyDraft(text=text, reasoning=reasoning, activity=activity):
                self._show_draft(text, reasoning, activity)
            case TaskProgress():
                self._note_task(event)
            case ApprovalNotice():
                self._show_approval(event)
            case FileEdit(task_id=task_id, path=path, diff=diff):
                task = self._tasks.get(task_id)
                self._screen.reply(f"task {task.number}" if task else "a task", f"`{path}`\n\n{diff}", lambda: None)
            case Said():
                self._show_said(event)
            case MessageAccepted():
                self._change_status()
            case MessageRejected(id, code, message):
                self._unanswered.remove(id)
                self._screen.notice(f"Not taken: {describe_rejection(code, message)}")
                self._change_status()
            case Online(agent=agent):
                self._greet(agent)
                self._online.set()
            case Offline(reason=reason, retry_in=retry):
                self._refused = retry is None
                self._note_offline(reason)

    def _note_thinking(self, is_active: bool) -> None:
        """Show that the agent thinks, or has stopped."""
        if not is_active:
            self._show_draft()
            if len(self._unanswered) == 1:  # that was its turn
                self._unanswered.note_answer(self._unanswered.last)
            self._nursery.start_soon(self._forget_answered)
        has_answered = self._status.answered and is_active and self._status.thinking
        self._change_status(thinking=is_active, answered=has_answered)

    def _note_offline(self, reason: str) -> None:
        """Show that there is no connection. Tasks and questions that are still there come again after the next welcome."""
        now = self._status
        self._offline_reason = reason
        self._show_draft()
        self._tasks.clear()
        self._asking.clear()
        self._questions.clear()
        self._screen.question_over()
        lost = now.lost or now.online
        self._was_stopped = STOPPING in reason or (self._was_stopped and not now.online)
        gone = lost and not self._config.agent_runs()
        if gone and not now.gone:
            self._screen.notice(gone_text(self._agent, self._config, was_stopped=self._was_stopped))
        self._update_status(ChatStatus(lost=lost, gone=gone))

    async def _forget_answered(self) -> None:
        """Expect no more answers if nothing waits any more: a message may end in silence, or be discarded."""
        if self._is_asking or not self._unanswered:
            return
        self._is_asking = True
        await trio.sleep(ENDED_SECONDS)
        last = self._unanswered.last
        if await is_nothing_waiting(self._conversation) and self._unanswered.note_answer(last):
            self._change_status()
        self._is_asking = False

    def _greet(self, agent: str) -> None:
        """Show the connection; the first time with the agent, its model, something to try, and the way out.

        A reconnection is visible in the status line only.
        """
        self._agent = agent
        if not self._status.lost:
            self._screen.notice(greeting(agent, self._config))
        self._change_status(online=True, gone=False)

    def _note_task(self, state: TaskProgress) -> None:
        """Take the newest state of a task into account."""
        for tasks in (self._tasks, self._asking):
            tasks.pop(state.task_id, None)
        if (task := running_task(state, monotonic())) is not None:
            (self._asking if is_asking(state) else self._tasks)[state.task_id] = task
        self._change_status(tasks=in_order(self._tasks.values()), asking=in_order(self._asking.values()))

    def _show_approval(self, notice: ApprovalNotice) -> None:
        """Show a call that waits for an answer, once, and what somebody else has answered."""
        if notice.state == "open" and notice.id not in self._questions:
            self._questions[notice.id] = notice
            is_new = notice.id not in self._asked
            if is_new:
                task = self._tasks.get(notice.task_id or "")
                text = question_text(notice, str(task.number) if task else "", wall_clock(), neutralise)
                self._asked[notice.id] = text
            id, name, may_widen, _ = waiting_question(notice, self._config.channel)
            self._screen.question(id, name, self._asked[id], may_widen=may_widen, is_new=is_new)
        elif notice.state != "open" and notice.id in self._asked:
            self._questions.pop(notice.id, None)
            del self._asked[notice.id]
            self._screen.question_over(notice.id)
            channel = self._config.channel
            if not notice.by.startswith(f"{channel.type}:{channel.channel_id}"):
                self._screen.notice(end_text(notice))
        self._note_questions()

    def _note_questions(self) -> None:
        """Show in the status line and in the menu which questions wait."""
        self._suggestions = attrs.evolve(self._suggestions, questions=self._question_names())
        self._screen.suggest(self._suggestions)
        questions = tuple(waiting_question(notice, self._config.channel) for notice in self._questions.values())
        self._change_status(questions=questions)

    def _question_names(self) -> tuple[tuple[str, str], ...]:
        """Return id and tool of each question that waits."""
        return tuple((id, notice.tool) for id, notice in self._questions.items())

    def _show_draft(self, text: str = "", reasoning: str = "", activity: str = "") -> None:
        """Show how far a reply is written, and what delays it; without texts it is withdrawn."""
        if text or reasoning or self._drafting:
            self._drafting = bool(text or reasoning)
            self._screen.draft(Draft(self._agent, text, reasoning) if self._drafting else None)
        self._change_status(writing=bool(text), activity=neutralise(activity))

    def _show_said(self, said: Said) -> None:
        """Show what was said in this conversation at another door."""
        if self._conversation.is_own(said.id) and said.from_ == "user":
            return
        text = "\n\n".join(filter(None, [said.text, *(f"[attached: {name}]" for name in said.media)]))
        if said.from_ == "user":
            self._last_question = said.id  # its answer need not repeat it
            what = "went back and said" if said.replaces else "asked"
            self._screen.notice(f"({what} on {said.channel.address}) {text}")
            if said.begins:
                self._screen.notice(f"{'─' * 8} a new conversation {'─' * 8}")
        else:
            self._screen.reply(f"{self._agent} → {said.channel.address}", text, lambda: None)

    def _show_question(self, reply: OutboundMessage) -> None:
        """Mark a reply of a guest's work. Show the question above its first answer, if it is another client's or not the last one."""
        if reply.metadata.get("who") == "guest":
            self._screen.notice("(from work for a guest)")
        id, question = reply.metadata.get(IN_REPLY_TO), reply.metadata.get("question")
        if not isinstance(id, str) or not isinstance(question, str) or id == self._last_question:
            return
        self._last_question = id
        if not self._conversation.is_own(id):
            self._screen.notice(f"(asked elsewhere) {question}")
        elif self._typed.last_id not in ("", id):
            self._screen.notice(f"(about) {question}")

    async def _show(self, reply: OutboundMessage) -> None:
        """Return when the reply has been drawn.

        Until then no other event is taken, so that the reply is acknowledged only after a person could see it.
        """
        drawn = trio.Event()
        self._show_question(reply)
        self._drafting = False  # the reply takes the draft's place
        if not self._unanswered.note_answer(reply.metadata.get(IN_REPLY_TO)):
            self._nursery.start_soon(self._forget_answered)
        self._change_status(answered=self._status.thinking, writing=False, activity="")
        self._screen.reply(self._agent, reply.text_with_names, partial(self._post, drawn.set))
        if usage := format_usage(reply.metadata.get("usage")):
            self._screen.notice(f"({usage})")
        await drawn.wait()
        self._replies += 1
        self._status_changed.notify()

    def _change_status(self, **changes: Any) -> None:
        """Show the present status with these changes."""
        self._update_status(attrs.evolve(self._status, **changes))

    def _update_status(self, status: ChatStatus) -> None:
        """Show this status, with the number of unsent messages as it is now."""
        status = attrs.evolve(status, unsent=self._unsent_count, waiting=len(self._unanswered))
        if status != self._status:
            self._status = status
            self._screen.status(status)
            self._status_changed.notify()
        if not self._unsent_count:
            self._all_accepted.notify()
