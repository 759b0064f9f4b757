"""The dashboard shows metrics and labels that the agent has."""

import json
import re
from pathlib import Path

from pegasus.messages import Address
from pegasus.observe import Activity, MessageDone, ModelCallEnded, ReplyPosted, ToolCallEnded
from pegasus.web.routes.prometheus import format_metrics

DASHBOARD = Path(__file__).parents[2] / "examples/grafana_dashboard.json"


def exported():
    """Labels by the name of each sample that the agent exports once it has done something of each kind."""
    activity, chat = Activity(lambda: 2_000), Address("web", "c1")
    activity.message_accepted("web", is_internal=False)
    activity.message_done(MessageDone(n=1, address=chat, began=1_000, ended=2_000))
    activity.reply_posted(ReplyPosted(key="main/1/a", address=chat, seq=1, at=1_500))
    activity.replies_acknowledged("web", 1)
    activity.model_called(ModelCallEnded(model="p/m", seconds=1, prompt_tokens=1, cost=0.1, failed="overloaded"))
    activity.tool_called(ToolCallEnded(tool="read_file", seconds=1))
    status = {"tasks": {"working": 1}}
    text = format_metrics(status, {}, {"path": "a", "state": "up", "restarts": 1}, 0, {}, activity).decode()
    found = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def test_every_metric_and_label_of_the_dashboard_exists():
    dashboard, known = json.loads(DASHBOARD.read_text("utf-8")), exported()
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert targets
    for target in targets:
        names = re.findall(r"\bpegasus_\w+", target["expr"])
        assert names
        for name in names:
            assert name in known, name
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            shown |= {label for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
            assert shown <= known[name], (name, shown)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
