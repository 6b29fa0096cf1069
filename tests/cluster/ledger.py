"""Compares the ledger of the callers with the audit log and with the effects of the tool."""

import hashlib
import hmac
import json
from collections import Counter
from dataclasses import dataclass, field

from client import KEYED, PLAIN, arguments


class Record:
    """The audit log in its database, read incrementally."""

    def __init__(self, database, mac_key):
        self.database, self.mac_key = database, mac_key
        self.leaves, self.intents, self.outcomes, self.open = [], set(), {}, {}
        self.faults = []

    def read(self):
        known = len(self.leaves)
        self.check_unchanged(known)
        # One statement reads a consistent state: the head, then the records.
        head, *rows = self.database.query(
            "SELECT -1, size::text, '' FROM audit.head UNION ALL"
            " SELECT sequence, encode(leaf_hash, 'hex'), encode(canonical, 'hex') FROM audit.record"
            f" WHERE sequence >= {known} ORDER BY 1"
        ).splitlines()
        for row in rows:
            sequence, leaf, canonical = row.split("|")
            self.take(int(sequence), leaf, bytes.fromhex(canonical))
        size = int(head.split("|")[1])
        if size != len(self.leaves):
            self.faults.append(f"the head says {size}, there are {len(self.leaves)}")

    def take(self, sequence, leaf, canonical):
        if sequence != len(self.leaves):
            self.faults.append(f"sequence {sequence} stands where {len(self.leaves)} should")
        if hashlib.sha256(b"\0" + canonical).hexdigest() != leaf:
            self.faults.append(f"the leaf hash of {sequence} is not that of its record")
        self.leaves.append(leaf)
        said = json.loads(canonical)
        call = said.get("call_id")
        if said["event"] == "intent":
            self.intents.add(said["arguments_hmac"])
            if call not in self.outcomes:
                self.open[call] = sequence
        if said["event"] == "outcome":
            if call in self.outcomes:
                self.faults.append(f"two outcomes of call {call}")
            self.outcomes[call] = (leaf, said["status"], said.get("result_hmac"))
            self.open.pop(call, None)

    def check_unchanged(self, known):
        """Checks that the records that were read earlier have not changed."""
        leaves = "SELECT coalesce(md5(string_agg(encode(leaf_hash, 'hex'), '' ORDER BY sequence)), '') FROM audit.record"
        if known:
            found = self.database.query(f"{leaves} WHERE sequence < {known}")
            if found != hashlib.md5("".join(self.leaves).encode()).hexdigest():
                self.faults.append(f"the first {known} records have changed")

    def mac(self, digest):
        """The digest of arguments or results in the audit log."""
        return hmac.new(self.mac_key, digest, "sha256").hexdigest()

    def has(self, attempt):
        """Whether a response is recorded as it was returned."""
        leaf, status, result = self.outcomes.get(attempt.call_id, (None, None, None))
        if leaf != attempt.leaf:
            return False
        # The text of a failure depends on the protocol version of the client.
        return status != "ok" if attempt.outcome == "told" else (status, result) == ("ok", self.mac(attempt.digest))


@dataclass
class Sums:
    """The sums that must be zero: (1) to (4) of the table, then all other faults."""

    unrecorded: list = field(default_factory=list)
    unintended: list = field(default_factory=list)
    doubled: list = field(default_factory=list)
    unanswered: list = field(default_factory=list)
    others: list = field(default_factory=list)

    def lists(self):
        return [self.unrecorded, self.unintended, self.doubled, self.unanswered, self.others]


def sums(calls, record, effects):
    """Computes the sums. `effects` contains the markers that the tool wrote, including duplicates."""
    found = Sums(others=list(record.faults))
    written = Counter(effects)
    for attempt in (attempt for call in calls for attempt in call):
        if attempt.outcome in ("acked", "told") and not record.has(attempt):
            found.unrecorded.append(attempt)
        if attempt.outcome in ("hung", "malformed"):
            found.unanswered.append(attempt)
    for call in calls:
        last = call[-1]
        if last.kind in (KEYED, PLAIN) and last.outcome == "acked" and not written[last.marker]:
            found.others.append(f"acknowledged and not written: {last}")
    # Each marker belongs to one call, which may run only once: a keyed call even if it was sent repeatedly.
    found.doubled = [marker for marker, times in written.items() if times > 1]
    intended = {marker: record.mac(hashlib.sha256(arguments(marker).encode()).digest()) for marker in written}
    found.unintended = [marker for marker, mac in intended.items() if mac not in record.intents]
    found.others += [f"intent {sequence} of {call} has no outcome" for call, sequence in record.open.items()]
    return found


@dataclass
class Tally:
    """Statistics of the outcomes that the callers saw."""

    calls: int
    acked: int
    outcomes: Counter
    retried: int
    failed: Counter
    gap: float
    slowest: float

    @classmethod
    def of(cls, calls):
        attempts = sorted((attempt for call in calls for attempt in call), key=lambda attempt: attempt.began)
        good = sorted(attempt.began + attempt.took for attempt in attempts if attempt.outcome == "acked")
        # A plain write whose connection was closed does not count as a failure, because its caller could not retry.
        failed = [call[-1] for call in calls if call[-1].outcome != "acked"]
        failed = [last for last in failed if (last.kind, last.outcome) != (PLAIN, "closed")]
        return cls(
            calls=len(calls),
            acked=sum(call[-1].outcome == "acked" for call in calls),
            outcomes=Counter(attempt.outcome for attempt in attempts),
            retried=sum(len(call) > 1 for call in calls),
            failed=Counter(f"{last.kind}: {last.outcome} {last.why}" for last in failed),
            gap=max((later - earlier for earlier, later in zip(good, good[1:])), default=0.0),
            slowest=max((attempt.took for attempt in attempts), default=0.0),
        )
