"""The dashboards show metrics and labels that the agent has."""

import json
import re
from pathlib import Path

import pytest

from pegasus.messages import Address
from pegasus.observe import GAUGES, Activity, MessageDone, ModelCallEnded, ReplyPosted, ToolCallEnded
from pegasus.web.routes.prometheus import format_metrics

EXAMPLES = Path(__file__).parents[2] / "examples"
OF_PROMETHEUS = {"instance"}
"""Labels that the server adds."""


def exported():
    """Labels by the name of each sample that the agent exports once it has done something of each kind."""
    activity, chat = Activity(lambda: 2_000), Address("web", "c1")
    activity.message_accepted("web", is_internal=False)
    activity.message_done(MessageDone(n=1, address=chat, began=1_000, ended=2_000))
    activity.reply_posted(ReplyPosted(key="main/1/a", address=chat, seq=1, at=1_500))
    activity.replies_acknowledged("web", 1)
    activity.model_called(ModelCallEnded(model="p/m", seconds=1, prompt_tokens=1, cost=0.1, failed="overloaded"))
    activity.tool_called(ToolCallEnded(tool="read_file", seconds=1))
    activity.keys_taken(["chat/web%3Ac1"])
    activity.keys_lost(["chat/web%3Ac1"])
    activity.transaction_ended(0.01)
    activity.message_picked_up("web", 1_000)
    activity.gauges = {name: lambda name=name: {("chat",) * len(GAUGES[name].labels): 1.0} for name in GAUGES}
    status = {"tasks": {"working": 1}}
    text = format_metrics(status, {}, {"path": "a", "state": "up", "restarts": 1}, 0, {}, activity).decode()
    found = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


@pytest.mark.parametrize("path", ["grafana_dashboard.json", "cluster/grafana_dashboard.json"])
def test_every_metric_and_label_of_a_dashboard_exists(path):
    dashboard, known = json.loads((EXAMPLES / path).read_text("utf-8")), exported()
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert targets
    for target in targets:
        names = re.findall(r"\bpegasus_\w+", target["expr"])
        assert names
        for name in names:
            assert name in known, name
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            shown |= {label for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
            assert shown - OF_PROMETHEUS <= known[name], (name, shown)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
