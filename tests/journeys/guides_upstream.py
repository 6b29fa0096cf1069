"""An MCP server with a prompt, resources and a tool that links to one of them."""

import json
import sys

PAGES = {"file:///ward/a.txt": "Ward A", "file:///ward/b.txt": "Ward B"}
ANSWERS = {
    "initialize": lambda params: {
        "protocolVersion": "2025-11-25",
        "capabilities": {"prompts": {}, "resources": {}},
        "serverInfo": {"name": "pages", "version": "1"},
    },
    "prompts/list": lambda params: {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]},
    "prompts/get": lambda params: {
        "messages": [{"role": "user", "content": {"type": "text", "text": f"Greet {params['arguments']['who']}."}}]
    },
    "resources/list": lambda params: {"resources": [{"uri": "file:///ward/a.txt", "name": "a"}]},
    "resources/templates/list": lambda params: {
        "resourceTemplates": [{"uriTemplate": "file:///ward/{+name}", "name": "page"}]
    },
    "resources/read": lambda params: {"contents": [{"uri": params["uri"], "text": PAGES[params["uri"]]}]},
    "tools/list": lambda params: {"tools": []},
}

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    try:
        answer["result"] = ANSWERS[request["method"]](request.get("params", {}))
    except KeyError:
        code = -32002 if request["method"] == "resources/read" else -32601
        answer["error"] = {"code": code, "message": "none"}
    print(json.dumps(answer), flush=True)
