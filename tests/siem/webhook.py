"""A webhook that verifies the token and the signature of each batch with the Standard Webhooks library, and prints its lines."""

import http.server
import ssl
import sys
from datetime import datetime, timedelta, timezone

from standardwebhooks.webhooks import Webhook

port, certificates, token, key = sys.argv[1:]
token, key = (open(path).read().strip() for path in (token, key))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {token}":
            return self.answer(401)
        # `verify` expects a body with one JSON text, but a batch has several.
        signed_at = datetime.fromtimestamp(int(self.headers["webhook-timestamp"]), tz=timezone.utc)
        expected = Webhook(key).sign(self.headers["webhook-id"], signed_at, body.decode())
        if self.headers["webhook-signature"] != expected or abs(datetime.now(timezone.utc) - signed_at) > timedelta(minutes=5):
            return self.answer(403)
        sys.stdout.buffer.write(body)
        sys.stdout.flush()
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{certificates}/tool.pem", f"{certificates}/tool.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
