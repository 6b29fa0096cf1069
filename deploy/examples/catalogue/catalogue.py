#!/usr/bin/env python3
"""A small catalogue server: GET /records?q=WORDS[&tag=T]...[&size=N] and GET /records/UUID.

python3 catalogue.py [PORT]    port 0 selects a free port; prints the address when ready
"""

import json
import pathlib
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

RECORDS = json.loads((pathlib.Path(__file__).parent / "records.json").read_text())


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def search(query, tags, size):
    asked = words(query)
    found = [(len(asked & words(record["title"] + " " + record["abstract"])), record) for record in RECORDS]
    found.sort(key=lambda hit: -hit[0])
    return [record for hits, record in found if hits and set(tags) <= set(record["tags"])][:size]


def answer(path):
    url = urlsplit(path)
    asked = parse_qs(url.query)
    if url.path == "/health":
        return 200, {"status": "ok"}
    if url.path == "/records" and asked.get("q"):
        return 200, {"records": search(asked["q"][0], asked.get("tag", []), int(asked.get("size", ["5"])[0]))}
    if url.path.startswith("/records/"):
        uuid = unquote(url.path.removeprefix("/records/"))
        for record in RECORDS:
            if record["uuid"] == uuid:
                return 200, record
        return 404, {"error": {"message": "no record has this uuid"}}
    return 400, {"error": {"message": "ask for /records?q=WORDS or /records/UUID"}}


class Catalogue(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, found = answer(self.path)
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8092), Catalogue)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
