#!/usr/bin/env python3
"""A small search server: GET /search?engine=NAME&q=WORDS returns {"results": [{title, body, href}, ...]}.

python3 search.py [PORT]    port 0 selects a free port; prints the address when ready
"""

import json
import pathlib
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAGES = json.loads((pathlib.Path(__file__).parent / "pages.json").read_text())


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def search(engine, query):
    """Every page of the engine that shares a word with the query, best first."""
    asked = words(query)
    found = [(len(asked & words(page["title"] + " " + page["body"])), page) for page in PAGES if engine in page["engines"]]
    found.sort(key=lambda hit: -hit[0])
    return [{key: page[key] for key in ("title", "body", "href")} for hits, page in found if hits]


class Search(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        asked = parse_qs(url.query)
        status, answer = 404, {"error": {"message": "no such path"}}
        if url.path == "/search":
            if len(asked.get("q", [])) == 1 and len(asked.get("engine", [])) == 1:
                status, answer = 200, {"results": search(asked["engine"][0], asked["q"][0])}
            else:
                status, answer = 400, {"error": {"message": "give q and engine, once each"}}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8091), Search)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
