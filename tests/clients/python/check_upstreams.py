"""Tests three third-party MCP servers behind one gateway: their tools work through it, and a guest is restricted."""

import json
import os
import sys
import time
import urllib.request

URL = os.environ["WARDGATE_URL"].removesuffix("/mcp")
failed = False


def ask(token, method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(URL + "/message", body, headers), timeout=60) as answer:
        return json.load(answer)


def call(token, name, **arguments):
    return ask(token, "tools/call", {"name": name, "arguments": arguments})


def text(answer):
    return answer["result"]["content"][0]["text"]


def check(what, holds):
    global failed
    failed |= not holds
    print(("ok   " if holds else "FAIL ") + "upstreams: " + what)


def listed(token):
    return {tool["name"] for tool in ask(token, "tools/list", {})["result"]["tools"]}


GUEST, DEVELOPER = os.environ["GUEST"], os.environ["UPSTREAM_DEVELOPER"]

# The tools of an upstream appear after the gateway has listed them.
deadline = time.monotonic() + 60
while not {"everything__echo", "files__list_directory", "time__get_current_time"} <= listed(GUEST) and time.monotonic() < deadline:
    time.sleep(0.2)

seen = listed(GUEST)
check("a guest sees the tools for reading and the echo", seen == {
    "read_shared_note", "everything__echo", "files__list_directory", "files__read_text_file",
    "time__convert_time", "time__get_current_time",
})
check("an upstream's tool answers", text(call(GUEST, "everything__echo", message="hello")) == "Echo: hello")
check("a file is read under a name of our own", "Coffee" in text(call(GUEST, "read_shared_note", note="welcome")))
outside = call(GUEST, "files__read_text_file", path="/etc/hostname")
check("a file outside the shared directory is not", outside["result"]["isError"] is True)
now = call(GUEST, "time__get_current_time", timezone="UTC")["result"]["structuredContent"]
check("structured content comes through", now["timezone"] == "UTC")
hidden, unknown = call(GUEST, "everything__get-env"), call(GUEST, "everything__get-nothing")
check("what a guest may not call is unknown", hidden["error"]["code"] == unknown["error"]["code"] == -32602)
environment = json.loads(text(call(DEVELOPER, "everything__get-env")))
check("an upstream's environment is PATH and HOME", set(environment) <= {"PATH", "HOME"})
total = call(DEVELOPER, "everything__get-sum", a=2, b=3)
check("a developer tries everything", "5" in text(total))
sys.exit(failed)
