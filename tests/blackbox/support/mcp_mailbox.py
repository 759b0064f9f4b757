"""A mailbox with a few other things as an MCP server: `python mcp_mailbox.py MAIL LOG`.

The file MAIL is the mail, which anybody may have written. Each call but those that read the mailbox is a line of the file LOG.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

MAIL, LOG = map(Path, sys.argv[1:])
TEXT = {"type": "string"}
TOOLS = {
    "read_mail": {},
    "find": {"query": TEXT},
    "open_page": {"url": TEXT},
    "send": {"to": TEXT, "subject": TEXT, "body": TEXT},
    "book": {"room": TEXT, "day": TEXT, "hours": {"type": "number", "default": 1}},
    "invite": {"name": TEXT, "email": TEXT},
    "delete_mail": {"id": TEXT},
}


def call(name: str, arguments: dict[str, Any]) -> str:
    if name in ("read_mail", "find"):
        return MAIL.read_text()
    with LOG.open("a") as log:
        log.write(json.dumps([name, arguments]) + "\n")
    return "done"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            about = {"name": "mailbox", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            schemas = {name: {"type": "object", "properties": fields} for name, fields in TOOLS.items()}
            return {"tools": [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]}
        case "tools/call":
            return {"content": [{"type": "text", "text": call(params["name"], params.get("arguments") or {})}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
