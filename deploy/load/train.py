"""Runs the calls for which a release is optimised, on a build that counts which code it executes. Started by deploy/release.

    ratio.py      a tool of an MCP server, of each protocol version, in one process and in separate ones; results of SQLite
    demo          a tool of the hospital demo, whose result a doctor gets in clear and a nurse masked; remembered conversations
"""

import argparse
import http.client
import json
import pathlib
import subprocess
import sys
import urllib.parse

from load import ARGUMENTS, CONNECTIONS, ROLE, SUBJECT, TOOL, Process, make_token

# Without this, calls of one caller would soon be refused.
UNLIMITED = {"WARDGATE_GATEWAY__LIMITS__REQUESTS_PER_MINUTE": "10000000"}
CALLERS = [("--sub", SUBJECT, "--role", ROLE), ("--sub", "nurse.joy", "--role", "Nurse", "--claim", "ward=W2")]
CONVERSATIONS = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, required=True, help="directory of the repository")
    parser.add_argument("--wardgate", type=pathlib.Path, required=True, help="the build that counts")
    parser.add_argument("--fixture", type=pathlib.Path, required=True, help="the rmcp server")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for data")
    parser.add_argument("--database", required=True, help="URL of a PostgreSQL for all stores")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of each load")
    arguments = parser.parse_args()
    call_server(arguments)
    use_demo(arguments)


def call_server(arguments):
    """Calls the tools that `make bench-ratio` measures."""
    words = [sys.executable, pathlib.Path(__file__).parent / "ratio.py", "--root", arguments.root, "--wardgate", arguments.wardgate]
    words += ["--fixture", arguments.fixture, "--out", arguments.out, "--rounds", "1", "--seconds", str(arguments.seconds)]
    subprocess.run([*words, "--database", arguments.database], check=True)
    # The stores of the separate services have the keys of their first start.
    subprocess.run([*words, "--era", "legacy"], check=True)


def use_demo(arguments):
    """Calls a tool of the demo and uses remembered conversations, all in one process."""
    data = arguments.out / "demo-data"
    words = [arguments.wardgate, "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--demo", "hospital"]
    gateway = Process(arguments.out / "demo.log", words, **UNLIMITED)
    for at, caller in enumerate(CALLERS):
        token = make_token(arguments.wardgate, data, *caller)
        file = data / f"token-{at}"
        file.write_text(token)
        words = [arguments.wardgate, "bench", "--url", gateway.url, "--token-file", file, "--tool", TOOL, "--args", ARGUMENTS]
        words += ["--connections", str(CONNECTIONS), "--seconds", str(arguments.seconds)]
        subprocess.run(words, check=True)
        for number in range(CONVERSATIONS):
            remember(gateway.url, token, f"training-{number}")
    gateway.stop()


def remember(url, token, conversation):
    """Adds messages to a conversation and reads them."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    message = {"conversation_id": conversation, "role": "user", "content": "Good morning. " * 20}
    requests = [("memory/get_or_create", {"conversation_id": conversation})]
    requests += [("memory/add_message", message), ("memory/get_context", {"conversation_id": conversation})] * 10
    for method, params in requests:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        connection.request("POST", "/message", body, headers)
        answer = json.loads(connection.getresponse().read())
        if "result" not in answer:
            raise SystemExit(f"{method}: {answer}")
    connection.close()


if __name__ == "__main__":
    main()
