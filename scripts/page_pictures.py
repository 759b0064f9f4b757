"""Pictures of the web page for the documentation, taken in Chromium from a running daemon with the built-in stand-in model.

What is shown is real but for the past: the conversation, the memory and the usage of the last weeks are written into the home before
the daemon starts, and the task is the stand-in's demo, which asks before it writes a file.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from pegasus.bridge import Bridge, BridgeRefused

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "pictures"
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
QUALITY = 0.86
NOW = int(time.time() * 1000)
DAY = 86_400_000

CONVERSATION = (
    ("user", "What did the sensors in the greenhouse say last night?"),
    (
        "agent",
        "All quiet but for one:\n\n| sensor | lowest | highest |\n|---|---|---|\n"
        "| 1 | 11.8 °C | 16.2 °C |\n| 2 | 12.1 °C | 16.0 °C |\n"
        "| 3 | **4.9 °C** | 18.4 °C |\n\nSensor 3 stands beside the door. It was open from 02:10 to 03:40, so I believe the number.",
    ),
    ("user", "Show me how you would check the door every ten minutes."),
    (
        "agent",
        "As a job of the schedule, so that nothing of it costs a thought while the door is shut:\n\n"
        "```sh\npegasus cron add --every 600 --channel web:main \\\n"
        '  --prompt "Is the greenhouse door open? Tell me only if it is."\n```\n\n'
        "Shall I make it?",
    ),
    ("user", "Yes, but only at night. And run the demo meanwhile."),
    (
        "agent",
        "Done: every ten minutes from 22:00 to 06:00. The demo works in the background; it will ask you before it writes.",
    ),
)
MEMORY = {
    "facts/user.md": "# User\n\n> Summary: who I work for\n\n- Name: Noor\n- Likes: short answers, tea\n",
    "facts/greenhouse.md": "# Greenhouse\n\n> Summary: beds, sensors, the door\n\n- Sensor 3 stands beside the door\n",
}

JOBS = (
    ("--every", "600", "--prompt", "Is the greenhouse door open? Tell me only if it is."),
    ("--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--prompt", "What is planned today?"),
)


def main() -> int:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("Chromium is not installed", file=sys.stderr)
        return 1
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pegasus-pictures-") as folder:
        home = Path(folder) / "home"
        prepare(home)
        command = [sys.executable, "-m", "pegasus", "--home", str(home)]
        daemon = subprocess.Popen(
            [*command, "run", "--no-cli"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert daemon.stdout is not None
            ready = dict(word.split("=", 1) for word in daemon.stdout.readline().split() if "=" in word)
            address, token = ready["http"], (home / "token").read_text().strip()
            subprocess.run(
                [*command, "send", "demo", "--channel", "demo", "--wait", "20"], check=True, capture_output=True
            )
            for job in JOBS:
                subprocess.run(
                    [*command, "cron", "add", *job, "--channel", "web:main"], check=True, capture_output=True
                )
            trio.run(write_as_somebody_unknown, ready["ws"], token)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                take_all(browser, address, token)
                browser.close()
        finally:
            daemon.terminate()
            daemon.wait()
    return 0


def take_all(browser: Any, address: str, token: str) -> None:
    windows = {}
    for name, size, scheme in (("light", DESK, "light"), ("dark", DESK, "dark"), ("phone", PHONE, "dark")):
        is_phone = name == "phone"
        context = browser.new_context(
            viewport=size, color_scheme=scheme, is_mobile=is_phone, has_touch=is_phone, reduced_motion="reduce"
        )
        page = windows[name] = context.new_page()
        page.goto(address)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.locator(".approval").first.wait_for()
    for name in ("light", "dark"):
        save(browser, windows[name], f"page-chat-{name}")
    save(browser, windows["phone"], "page-phone")
    windows["light"].get_by_role("button", name="Allow", exact=True).click()
    for name in ("light", "dark"):
        page = windows[name]
        page.goto(f"{address}/#/tasks/1")
        page.locator('.state[data-state="completed"]').wait_for(timeout=60_000)
        save(browser, page, f"page-task-{name}")
    windows["light"].goto(f"{address}/#/usage")
    windows["light"].locator(".chart").wait_for()
    save(browser, windows["light"], "page-usage")
    windows["light"].goto(f"{address}/#/schedule")
    windows["light"].get_by_role("button", name="Run now").first.wait_for()
    save(browser, windows["light"], "page-schedule")
    windows["light"].goto(f"{address}/#/channels")
    windows["light"].get_by_role("button", name="Let in").wait_for()
    save(browser, windows["light"], "page-channels")


async def write_as_somebody_unknown(url: str, token: str) -> None:
    """Write over a bridge as somebody who was not let in, and gets a code."""
    async with Bridge(url, token, "matrix") as bridge:
        with suppress(BridgeRefused):
            await bridge.send("May I talk with you?", "!kitchen", user_id="@ada:example.org")
        await bridge.acknowledge(await anext(bridge))


def save(browser: Any, page: Any, name: str) -> None:
    """Take a picture and write it as WebP, which the browser itself can make."""
    page.wait_for_timeout(900)  # Markdown is laid out, bars are drawn
    png = base64.b64encode(page.screenshot()).decode()
    maker = browser.new_page()
    data = maker.evaluate(
        """async ([png, quality]) => {
            const image = new Image();
            image.src = `data:image/png;base64,${png}`;
            await image.decode();
            const canvas = new OffscreenCanvas(image.width, image.height);
            canvas.getContext("2d").drawImage(image, 0, 0);
            const blob = await canvas.convertToBlob({ type: "image/webp", quality });
            return btoa(String.fromCharCode(...new Uint8Array(await blob.arrayBuffer())));
        }""",
        [png, QUALITY],
    )
    maker.close()
    file = TARGET / f"{name}.webp"
    file.write_bytes(base64.b64decode(data))
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")


# ------------------------------------------------------------------ the past


def prepare(home: Path) -> None:
    """Write a home with a past."""
    for folder in ("data/main", "data/usage", "data/memory/facts"):
        (home / folder).mkdir(parents=True)
    home.chmod(0o700)
    (home / "pegasus.toml").write_text(
        'gateway.port = 0\nhttp.port = 0\nmodels.default = "offline/stand-in"\n'
        'policy.rules = [{tool = "write_file", decision = "ask"}]\nbudget.monthly_cost = 20.0\n'
        'channels.matrix.access = "pairing"\n'
    )
    (home / "pegasus.toml").chmod(0o600)
    (home / "data/main/2026-01-02-030405.jsonl").write_text("".join(past_lines()))
    for path, text in MEMORY.items():
        (home / "data/memory" / path).write_text(text)
    months: dict[str, list[str]] = {}
    for record in past_usage(random.Random(4)):
        months.setdefault(time.strftime("%Y-%m", time.gmtime(record["ts"] / 1000)), []).append(json.dumps(record))
    for month, lines in months.items():
        (home / "data/usage" / f"{month}.jsonl").write_text("\n".join(lines) + "\n")


def past_lines() -> Any:
    for n, (sender, text) in enumerate(CONVERSATION, 1):
        ts = NOW - (len(CONVERSATION) - n) * 95_000 - 120_000
        if sender == "user":
            yield line(
                ts=ts,
                role="user",
                content=f"[channel: web | id: main]\n{text}",
                metadata={"item": n, "messageId": f"past-{n}"},
            )
            continue
        call = {"id": f"c{n}", "name": "reply", "arguments": {"channelId": "main", "text": text}}
        yield line(ts=ts, role="assistant", toolCalls=[call])
        result = {"queued": True, "channelType": "web", "channelId": "main", "seq": n}
        yield line(ts=ts + 1, role="tool", content=json.dumps(result), toolCallId=f"c{n}")


def line(**fields: Any) -> str:
    return json.dumps(fields) + "\n"


def past_usage(chance: random.Random) -> Any:
    models = (("anthropic/claude-sonnet-5-5", 3e-6), ("openai/gpt-5.2-mini", 4e-7), ("ollama/qwen3:8b", 0.0))
    channels = (("web", "main"), ("telegram", "123456"), ("slack", "#greenhouse"))
    for day in range(32):
        for n in range(chance.randint(2, 16) if day % 7 not in (1, 2) else chance.randint(0, 3)):
            model, price = models[chance.choices((0, 1, 2), (6, 3, 2))[0]]
            kind, channel_id = chance.choice(channels)
            prompt, completion = chance.randint(3000, 30000), chance.randint(100, 1800)
            yield {
                "id": f"past-{day}-{n}",
                "ts": NOW - day * DAY - chance.randint(0, 30_000_000),
                "model": model,
                "role": "default",
                "channel": {"type": kind, "channelId": channel_id},
                "promptTokens": prompt,
                "completionTokens": completion,
                "cacheReadTokens": int(prompt * 0.7),
                "cost": round(prompt * price + completion * price * 5, 6),
            }


if __name__ == "__main__":
    sys.exit(main())
