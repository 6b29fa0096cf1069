"""Tests the sums: each kind of injected loss must appear in its own sum and in no other."""

import hashlib
import hmac
import json
import unittest
from types import SimpleNamespace

from client import Attempt, arguments, read
from ledger import Record, sums

KEY = bytes(32)


def mac(text):
    return hmac.new(KEY, hashlib.sha256(text.encode()).digest(), "sha256").hexdigest()


class Books:
    """An audit log as its database returns it, and the ledger of the same calls."""

    def __init__(self):
        self.rows, self.calls, self.effects = [], [], []

    def put(self, **said):
        canonical = json.dumps(said).encode()
        self.rows.append((hashlib.sha256(b"\0" + canonical).hexdigest(), canonical))
        return self.rows[-1][0]

    def call(self, marker, kind="keyed"):
        """A correct write."""
        given = '[{"type":"text","text":"done"}]'
        self.put(event="intent", call_id=marker, arguments_hmac=mac(arguments(marker)))
        self.effects.append(marker)
        leaf = self.put(event="outcome", call_id=marker, status="ok", result_hmac=mac(given))
        meta = {"dev.wardgate/callId": marker, "dev.wardgate/receipt": {"leafHash": leaf}}
        made = Attempt(kind, marker, 0.0)
        body = f'{{"jsonrpc":"2.0","id":"{marker}","result":{{"content":{given},"_meta":{json.dumps(meta)}}}}}'
        read(made, body.encode())
        self.calls.append([made])
        return made

    def query(self, statement):
        known = int(statement.split(" < ")[1]) if "md5" in statement else 0
        if known:
            return hashlib.md5("".join(leaf for leaf, _ in self.rows[:known]).encode()).hexdigest()
        begin = int(statement.split(">= ")[1].split()[0])
        rows = [f"{at}|{leaf}|{canonical.hex()}" for at, (leaf, canonical) in enumerate(self.rows)]
        return "\n".join([f"-1|{len(self.rows)}|", *rows[begin:]])

    def found(self):
        record = Record(SimpleNamespace(query=self.query), KEY)
        record.read()
        return [len(what) for what in sums(self.calls, record, self.effects).lists()]


class Sums(unittest.TestCase):
    def setUp(self):
        self.books = Books()
        self.call = self.books.call("a")
        self.assertEqual(self.call.outcome, "acked")

    def test_books_that_agree_have_nothing_in_any_sum(self):
        self.assertEqual(self.books.found(), [0, 0, 0, 0, 0])

    def test_an_answer_that_is_not_on_record_or_not_as_it_was_given(self):
        for change in ({"call_id": "b"}, {"leaf": "0" * 64}, {"digest": bytes(32)}, {"outcome": "told"}):
            changed = {name: getattr(self.call, name) for name in self.call.__slots__} | change
            self.books.calls = [[Attempt(**changed)]]
            self.assertEqual(self.books.found(), [1, 0, 0, 0, 0], change)

    def test_an_effect_without_intent(self):
        self.books.effects.append("b")
        self.assertEqual(self.books.found(), [0, 1, 0, 0, 0])

    def test_a_call_that_ran_twice(self):
        self.books.effects.append("a")
        self.assertEqual(self.books.found(), [0, 0, 1, 0, 0])

    def test_no_answer_and_an_answer_to_nothing(self):
        self.books.calls.append([Attempt("read", "b", 0.0, outcome="hung")])
        for body in (b"", b"<html>", b'{"jsonrpc":"2.0","id":"c","result":{}}', b'{"jsonrpc":"2.0","id":"d","error":{}}'):
            made = Attempt("read", "d", 0.0)
            read(made, body)
            self.books.calls.append([made])
        self.assertEqual(self.books.found(), [0, 0, 0, 5, 0])

    def test_an_error_that_is_one(self):
        made = Attempt("read", "d", 0.0)
        read(made, b'{"jsonrpc":"2.0","id":"d","error":{"code":-32603,"message":"no"}}')
        self.assertEqual((made.outcome, made.why), ("error", "-32603 no"))

    def test_acknowledged_and_never_written(self):
        self.books.effects = []
        self.assertEqual(self.books.found(), [0, 0, 0, 0, 1])

    def test_an_intent_without_outcome_a_changed_record_and_two_outcomes(self):
        self.books.put(event="intent", call_id="b", arguments_hmac="")
        self.assertEqual(self.books.found(), [0, 0, 0, 0, 1])
        self.books.put(event="outcome", call_id="b", status="unknown")
        self.assertEqual(self.books.found(), [0, 0, 0, 0, 0])
        leaf, canonical = self.books.rows[2]
        self.books.rows[2] = (leaf, canonical + b" ")
        self.assertEqual(self.books.found(), [0, 0, 0, 0, 1])
        self.books.rows[2] = (leaf, canonical)
        self.books.put(event="outcome", call_id="b", status="ok")
        self.assertEqual(self.books.found(), [0, 0, 0, 0, 1])

    def test_what_was_read_once_and_reads_differently_later(self):
        record = Record(SimpleNamespace(query=self.books.query), KEY)
        record.read()
        self.books.rows[0] = ("0" * 64, self.books.rows[0][1])
        record.read()
        self.assertEqual(record.faults, ["the first 2 records have changed"])


if __name__ == "__main__":
    unittest.main()
