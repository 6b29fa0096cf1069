"""An MCP server over stdio. It reads its tools from a file, notifies clients when the file changes, and writes a file when its
input ends."""
import json
import os
import sys
import threading
import time

path = sys.argv[1]


def tools():
    with open(path, encoding="utf-8") as file:
        return file.read()


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def watch():
    last = tools()
    while True:
        time.sleep(0.05)
        if tools() != last:
            last = tools()
            say({"method": "notifications/tools/list_changed"})


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": json.loads(tools())}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "ran " + params["name"]}]}
    return None


threading.Thread(target=watch, daemon=True).start()
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params"))
    if result is None:
        say({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
    else:
        say({"id": request["id"], "result": result})
with open(path + ".ended", "w", encoding="utf-8"):
    pass
os._exit(0)
