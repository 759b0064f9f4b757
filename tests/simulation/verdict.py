"""Whether everything that was accepted in a life was answered exactly once, as the script says, or by one honest apology."""

from __future__ import annotations

import json
import re
from collections import Counter

from pegasus.app.approval_texts import UNREACHABLE
from pegasus.main_agent.item_endings import STOPPED_ELSEWHERE

ANSWERS = {
    "/help": "/stop — ",
    "/status": "I am ",
    "/stop": ("Stopped:", "Nothing was running"),
    "/new": "This is a fresh",
}
FAILED = "Sorry, an internal error occurred: work on your message failed 3 times"
GAVE_UP = re.compile(
    r"I gave up: the tool (?P<tool>\w+) (was called (?P<same>\d+) times in a row with the same|failed (?P<times>\d+) times in a row: )"
)
NOT_THOUGHT = "The model did not answer: "


def verdict(life, faults):
    """What is wrong with a life that has ended, in words; faults: how many crashes and cancels there were."""
    wrong = list(life.wrong)
    if not life.finished:
        return [*wrong, "it did not come to its end"]
    replies = [reply for client in life.clients for seen in client.seen.values() for reply in seen]
    stopped = _sessions(life, wrong)
    said = Counter(reply.text for reply in replies if reply.text.startswith("#"))
    wrong += [f"{text} was said {count} times" for text, count in said.items() if count > 1]
    other = {}
    for reply in replies:
        if not reply.text.startswith("#"):
            other.setdefault((reply.channel.address, reply.metadata.get("inReplyTo")), []).append(reply.text)
    named = {*stopped, *(int(n) for ended in life.ended for n in re.findall(r"#(\d+)", ended.what))}
    for plan in life.plans.values():
        for text in other.get((plan.channel.address, plan.id), []):
            told = set(map(int, re.findall(r"#(\d+)", text))) if text.startswith("Stopped:") else set()
            named |= told
            ended = {n for n, by in stopped.items() if by is not None and by == life.accepted.get(plan.number)}
            if ended - told and not text.startswith(FAILED):
                wrong.append(f"{plan.text} has stopped {ended}, and says: {text}")
    for plan in life.plans.values():
        texts = {text for text in said if text.startswith(f"#{plan.number}.")}
        about = _judge(
            plan,
            texts,
            other.get((plan.channel.address, plan.id), []),
            life,
            plan.number in named,
            faults + sum(life.model.bugs.values()),
        )
        if about:
            wrong.append(f"{plan.text} ({plan.channel.address} {plan.id}): {about}")
    wrong += [
        f"question {question.number}: {about}"
        for question in life.story.questions
        if (about := _judge_question(question, said[question.text], life.answers[question.number], other))
    ]
    return wrong


def _judge_question(question, times, answers, other):
    """What is wrong with the answers of owners to one question, and with what came of them. times: the reply was sent."""
    told = [text for answer in answers for text in other.get(answer, ["nothing"])]
    if len(told) != len(answers):
        return f"{answers} were answered by {told}"
    first = [text for text in told if text.endswith("sent.")]
    late = [text for text in told if "The first answer counts" in text]
    honest = (FAILED, UNREACHABLE, "/approve did not work: ", "/deny did not work: ")  # nothing was answered
    if others := [text for text in told if text not in (*first, *late) and not text.startswith(honest)]:
        return f"why {others}?"
    if len(first) > 1:
        return f"more than one answer counted: {told}"
    outcomes = {"is allowed" in text for text in (*first, *late)}
    if len(outcomes) > 1 or outcomes not in (set(), {bool(times)}):
        return f"owners were told {told}, and it was sent {times} times"
    return ""


def _judge(plan, said, other, life, stopped, faults):
    """What is wrong with the answers to one message, "" if nothing is. said: by the model; other: by the agent itself."""
    if not said and not other and (stopped or plan.number not in life.accepted):
        return ""
    if len(other) > 1:
        return f"it was answered more than once: {other}"
    if other and other[0] == STOPPED_ELSEWHERE:
        return "" if stopped else "it says that it was stopped, which nobody did"
    failed = bool(other) and other[0].startswith(FAILED)
    if failed and faults < 3:
        return "it failed 3 times, says the apology; it did not"
    if plan.command:
        return "" if failed or (other and other[0].startswith(ANSWERS[plan.command])) else f"the answers were {other}"
    if not said <= plan.says:
        return f"nobody had planned {said - plan.says}"
    gave_up = GAVE_UP.match(other[0]) if other else None
    if gave_up and life.model.calls_in_a_row(plan.number, gave_up["tool"], gave_up["same"]) < int(
        gave_up["same"] or gave_up["times"]
    ):
        return f"it was not called so often: {other}"
    is_honest = failed or gave_up or (other and other[0].startswith(NOT_THOUGHT) and life.model.errors[plan.number])
    if other and not is_honest:
        return f"why {other}?"
    if other and plan.ends_by_speaking and said == plan.says:
        return f"it was answered, and yet there is {other}"
    return "" if other or stopped or said == plan.says else f"only {said or 'nothing'} of {plan.says} was said"


def _sessions(life, wrong):
    """By the numbers of messages whose thoughts were stopped, the item that did it, as the sessions tell.

    None for an operator, and for what /new has put aside: two crashes later the agent need not know it any more.
    """
    stopped, seen, runs = {}, Counter(), {}
    for path in life.disk.paths():
        if not re.fullmatch(r"main/(current|\d{4}-[-\d]+)\.jsonl", path):
            continue
        number = None
        for line in life.disk.content(path).splitlines():
            entry = json.loads(line)
            metadata = entry.get("metadata", {})
            if "item" in metadata:
                found = re.search(r"^(?:/new )?#(\d+)$", entry["content"], re.MULTILINE)
                number = int(found[1]) if found else None
                seen[metadata["item"]] += 1
                if "jobId" in metadata:
                    runs.setdefault(metadata["jobId"], set()).add(metadata["item"])
            elif metadata.get("type") == "stopped" and number is not None:
                stopped[number] = metadata.get("stop") if path.endswith("current.jsonl") else None
    wrong += [f"item {n} is {count} times in the sessions" for n, count in seen.items() if count > 1]
    wrong += [f"{job} has run {len(items)} times: {items}" for job, items in runs.items() if len(items) > 1]
    return stopped
