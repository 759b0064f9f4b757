"""The web page in Chromium: first paint, the first word of an answer, bytes, and frames with a conversation of 10,000 messages.

The floor of a row is the limit that is promised. The browser draws without a graphics card here, so a frame takes longer than on a
desk; the row about its length is for information, beside that of an empty page.
Nothing is measured where Chromium or playwright (requirements-dev.lock) is missing.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import Result
from benchmarks.samples import median
from benchmarks.workplace import TOKEN, Workplace

MESSAGES = 10_000
PAINT, FIRST_WORD, BYTES, WORK = 1000.0, 500.0, 150_000.0, 8.0
"""Limits: ms until the first paint, ms from Enter to the first word, bytes, and ms of work in a frame, of the 16.7 that there are."""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def measure(place: Workplace) -> Iterator[Result]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("the page is not measured: it takes Chromium, and playwright of requirements-dev.lock", file=sys.stderr)
        return
    home = place.home()
    _write_history(home / "data" / "main" / "2026-01-02-030405.jsonl")
    with place.daemon(home) as daemon, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        _sign_in(context, daemon.http)
        rounds = place.rounds(7, 2)
        paints, sizes = zip(*(_load(browser, context, daemon.http) for _ in range(rounds)), strict=True)
        yield _result("page: first paint, nothing cached", paints, PAINT, "ms")
        yield _result("page: bytes of the chat as they are", [size["decoded"] for size in sizes], BYTES, "bytes")
        yield _result("page: bytes of the chat on the wire", [size["sent"] for size in sizes], BYTES, "bytes")
        page = context.new_page()
        page.goto(daemon.http)
        page.locator(".message.agent .md").last.wait_for()
        yield _result(
            "page: Enter to the first word of the answer", [_first_word(page) for _ in range(rounds)], FIRST_WORD, "ms"
        )
        _load_everything(page)
        metrics = context.new_cdp_session(page)
        metrics.send("Performance.enable")
        before = _work(metrics)
        frames = sorted(_scroll(page, ".scroller"))
        work = (_work(metrics) - before) * 1e3 / len(frames)
        name = f"page: script, style and layout of a frame while {MESSAGES:,} messages scroll"
        yield _result(name, [work], WORK, "ms")
        plain = context.new_page()
        plain.set_content('<div id="tall" style="height: 100vh; overflow: auto"><p style="height: 1000000px">text')
        floor = sorted(_scroll(plain, "#tall"))
        p95, floor_p95 = (times[int(len(times) * 0.95)] for times in (frames, floor))
        yield Result("page: such a frame, p95", p95, floor_p95, "an empty page", "ms", p95 / floor_p95)
        browser.close()


def _result(name: str, values: Any, limit: float, unit: str) -> Result:
    typical = median(values)
    return Result(name, typical, limit, "limit", unit, typical / limit, 1.0, None, {"worst": max(values)})


def _write_history(path: Path) -> None:
    """An archived session with MESSAGES messages, half of them replies."""
    with path.open("w") as file:
        for n in range(1, MESSAGES // 2 + 1):
            question = f"[channel: web | id: main]\nquestion {n} " + "word " * (n % 20)
            answer = f"Answer **{n}**. " + "word " * (n % 60) + ("\n\n```python\nprint(1)\n```" if n % 7 == 0 else "")
            call = {"id": f"c{n}", "name": "reply", "arguments": {"channelId": "main", "text": answer}}
            done = {"queued": True, "channelType": "web", "channelId": "main", "seq": n}
            lines: tuple[dict[str, Any], ...] = (
                {"ts": n, "role": "user", "content": question, "metadata": {"item": n, "messageId": f"old-{n}"}},
                {"ts": n, "role": "assistant", "toolCalls": [call]},
                {"ts": n, "role": "tool", "content": json.dumps(done), "toolCallId": f"c{n}"},
            )
            file.writelines(json.dumps(line) + "\n" for line in lines)


def _sign_in(context: Any, address: str) -> None:
    page = context.new_page()
    page.goto(address)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".message.agent .md").last.wait_for()
    page.close()


def _load(browser: Any, signed_in: Any, address: str) -> tuple[float, dict[str, float]]:
    """Load the page in a window without a cache, signed in. Return ms until the first paint, and the bytes of all files."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, storage_state=signed_in.storage_state())
    page = context.new_page()
    page.goto(address)
    page.locator(".message.agent .md").last.wait_for()
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    sizes = page.evaluate("""() => {
        const entries = [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")];
        const sum = (key) => entries.reduce((total, entry) => total + (entry[key] ?? 0), 0);
        return {decoded: sum("decodedBodySize"), sent: sum("transferSize")};
    }""")
    context.close()
    return paint, sizes


def _first_word(page: Any) -> float:
    """Return ms from Enter to the first word of the answer."""
    page.get_by_label("Message", exact=True).fill("hello")
    taken: float = page.evaluate("""async () => {
        const seen = () => document.querySelectorAll(".message.agent:not(.thinking) .body").length;
        const before = seen();
        const start = performance.now();
        document.querySelector(".composer").requestSubmit();
        while (seen() === before) await new Promise(requestAnimationFrame);
        const taken = performance.now() - start;
        while (document.querySelector(".draft, .thinking")) await new Promise(requestAnimationFrame);
        return taken;
    }""")
    return taken


def _work(metrics: Any) -> float:
    """Return the seconds that the page has spent in scripts, styles and layout."""
    values = {each["name"]: each["value"] for each in metrics.send("Performance.getMetrics")["metrics"]}
    return float(sum(values[name] for name in ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")))


def _load_everything(page: Any) -> None:
    """Load the whole conversation."""
    page.evaluate("""async () => {
        const scroller = document.querySelector(".scroller");
        while (!document.querySelector(".top").textContent.includes("beginning")) {
            scroller.scrollTop = 0;
            await new Promise(requestAnimationFrame);
        }
        scroller.scrollTop = 0;
        await new Promise((resolve) => setTimeout(resolve, 1000));
    }""")


def _scroll(page: Any, scroller: str) -> list[float]:
    """Scroll by 120 pixels in each of 400 frames. Return the ms of each frame."""
    times: list[float] = page.evaluate(
        """async (selector) => {
            const scroller = document.querySelector(selector);
            const frame = () => new Promise(requestAnimationFrame);
            const times = [];
            let last = await frame();
            for (let n = 0; n < 400; n++) {
                scroller.scrollTop += 120;
                const now = await frame();
                times.push(now - last);
                last = now;
            }
            return times;
        }""",
        scroller,
    )
    return times
