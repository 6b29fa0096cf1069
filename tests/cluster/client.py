"""The load: callers that keep a ledger of every attempt, independently of the audit log.

    read     a governed read                    retried once on a closed connection
    slow     a read that takes a second         the same; a stopping pod must wait for it
    keyed    a write with an idempotency key    retried with the same key, as often as `keyed_tries` allows
    plain    a write without a key              sent once, because a retry could write twice
"""

import hashlib
import http.client
import json
import threading
import time
import uuid
from dataclasses import dataclass

HOST = "demo-wardgate-gateway"
VERSION = "2026-07-28"
# Seconds after which a call without a response counts as hung. The time limit of the tools is five seconds.
HANGS = 20.0

DECODER = json.JSONDecoder()
READ, SLOW, KEYED, PLAIN = "read", "slow", "keyed", "plain"
MIX = [READ, KEYED, READ, PLAIN, KEYED, READ, SLOW, KEYED]
# Only calls that a client may repeat.
REPEATABLE = [kind for kind in MIX if kind != PLAIN]
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "ledger", "version": "1"},
}


def headers(token, method):
    return {
        "Host": HOST,
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
    }


def ask(address, port, token, method, **params):
    """Sends one request, which is not part of a load. Returns the status and the body of the response."""
    connection = http.client.HTTPConnection(address, port, timeout=HANGS)
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": {**params, "_meta": META}})
    connection.request("POST", "/mcp", body.encode(), headers(token, method))
    response = connection.getresponse()
    status, answer = response.status, response.read().decode()
    connection.close()
    return status, answer


def arguments(marker):
    """The exact arguments of a writing call. The audit log contains their digest."""
    return json.dumps({"marker": marker}, separators=(",", ":"))


@dataclass(slots=True)
class Attempt:
    """One request and its outcome.

    acked   a result, with its receipt        error      a well-formed JSON-RPC error
    told    the tool failed, with a receipt   closed     the connection was closed or refused
                                              hung, malformed: must never occur
    """

    kind: str
    marker: str
    began: float
    took: float = 0.0
    outcome: str = ""
    why: str = ""
    call_id: str = ""
    leaf: str = ""
    # SHA-256 of the returned content.
    digest: bytes = b""


class Caller(threading.Thread):
    def __init__(self, load, number):
        super().__init__(daemon=True)
        self.load, self.number = load, number
        self.connection = None
        self.calls = []

    def run(self):
        while not self.load.ended.is_set():
            kind = self.load.mix[(len(self.calls) + self.number) % len(self.load.mix)]
            self.calls.append(self.call(kind, uuid.uuid4().hex))
            self.load.ended.wait(self.load.pace)

    def call(self, kind, marker):
        """Makes all attempts of one call. The last one counts."""
        attempts = [self.attempt(kind, marker)]
        while len(attempts) < self.load.tries[kind] and not self.load.abandoned.is_set():
            last = attempts[-1]
            if last.outcome == "acked" or "its outcome is unknown" in last.why:
                break
            if last.outcome != "closed":
                if not self.load.insists:
                    break
                self.load.ended.wait(self.load.retry_after)
            attempts.append(self.attempt(kind, marker))
        return attempts

    def attempt(self, kind, marker):
        made = Attempt(kind, marker, time.monotonic())
        try:
            self.sent(made)
        except TimeoutError:
            made.outcome, self.connection = "hung", None
        except (OSError, http.client.HTTPException) as error:
            made.outcome, made.why, self.connection = "closed", type(error).__name__, None
        made.took = time.monotonic() - made.began
        return made

    def sent(self, made):
        tool, given = "write_line", arguments(made.marker)
        if made.kind == READ:
            tool, given = "get_medical_records", '{"patient_id":"NUGWI"}'
        elif made.kind == SLOW:
            tool, given = "read_slowly", "{}"
        lines = {**headers(self.load.token, "tools/call"), "Mcp-Name": tool}
        if made.kind == KEYED:
            lines["Idempotency-Key"] = made.marker
        body = f'{{"jsonrpc":"2.0","id":"{made.marker}","method":"tools/call","params":{{"name":"{tool}",'
        body += f'"arguments":{given},"_meta":{json.dumps(META)}}}}}'
        self.connection = self.connection or http.client.HTTPConnection(self.load.address, 80, timeout=HANGS)
        self.connection.request("POST", "/mcp", body.encode(), lines)
        response = self.connection.getresponse()
        read(made, response.read())
        if response.will_close:
            self.connection = None


def member(text, key, begin=0):
    """The unparsed text of a JSON member, and its end position."""
    at = text.find(f'"{key}":', begin)
    if at < 0:
        return "", begin
    at += len(key) + 3
    end = DECODER.raw_decode(text, at)[1]
    return text[at:end], end


def read(made, body):
    """Reads the response into the attempt. A response to another call is malformed."""
    try:
        text = body.decode()
        answer = json.loads(text)
        assert answer["jsonrpc"] == "2.0" and answer["id"] == made.marker
        if "error" in answer:
            made.why = f"{int(answer['error']['code'])} {answer['error']['message']}"
            made.outcome = "error"
            return
        result = answer["result"]
        receipt = result["_meta"]["dev.wardgate/receipt"]
        made.call_id = result["_meta"]["dev.wardgate/callId"]
        made.leaf = receipt["leafHash"]
        content, end = member(text, "content")
        structured, _ = member(text, "structuredContent", end)
        made.digest = hashlib.sha256((content + structured).encode()).digest()
        made.outcome = "acked"
        if result.get("isError"):
            made.outcome, made.why = "told", result["content"][0]["text"]
    except (ValueError, KeyError, TypeError, IndexError, AssertionError):
        made.outcome, made.why = "malformed", body[:120].decode(errors="replace")


class Load:
    """Callers that run until they are stopped, with a pause of `pace` seconds after each call. With `insists`, calls are also
    retried after errors, `retry_after` seconds later. With `strict`, no call may fail."""

    def __init__(
        self, address, token, callers=6, insists=True, strict=False, keyed_tries=20, retry_after=0.5, pace=0.02, mix=MIX
    ):
        self.address, self.token, self.insists, self.strict = address, token, insists, strict
        self.retry_after, self.pace, self.mix = retry_after, pace, mix
        self.tries = {READ: 2, SLOW: 2, KEYED: keyed_tries if insists else 2, PLAIN: 1}
        self.ended, self.abandoned = threading.Event(), threading.Event()
        self.callers = [Caller(self, number) for number in range(callers)]
        for caller in self.callers:
            caller.start()

    def calls(self):
        return sum(len(caller.calls) for caller in self.callers)

    def longest_gap(self, since):
        """The longest time without an acknowledged call since `since`, in seconds."""
        ends = [since, time.monotonic()]
        for caller in self.callers:
            attempts = (attempt for call in caller.calls[-2000:] for attempt in call)
            acked = (attempt.began + attempt.took for attempt in attempts if attempt.outcome == "acked")
            ends += [end for end in acked if end > since]
        ends.sort()
        return max(later - earlier for earlier, later in zip(ends, ends[1:]))

    def end(self):
        """Stops the load after the calls in flight, and returns all calls with their attempts."""
        self.ended.set()
        until = time.monotonic() + 2 * HANGS
        for caller in self.callers:
            caller.join(max(0.0, until - time.monotonic()))
            self.abandoned.set()
        for caller in self.callers:
            caller.join()
        return [call for caller in self.callers for call in caller.calls]
