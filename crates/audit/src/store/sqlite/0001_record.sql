-- Append-only: the triggers stop a slip of the hand, the Merkle tree over leaf_hash shows a will.
CREATE TABLE record (
    sequence  INTEGER PRIMARY KEY,      -- dense, from 0
    leaf_hash BLOB    NOT NULL,         -- RFC 6962
    canonical BLOB    NOT NULL,         -- the record, RFC 8785
    event     TEXT    NOT NULL,         -- the rest repeats parts of it for queries
    time      INTEGER NOT NULL,         -- microseconds since 1970
    call_id   TEXT,
    subject   TEXT,
    tool      TEXT,
    status    TEXT
) STRICT;

-- One intent and one outcome for each call.
CREATE UNIQUE INDEX record_call ON record (call_id, event);
CREATE INDEX record_subject ON record (subject, sequence);
CREATE INDEX record_tool ON record (tool, sequence);
CREATE INDEX record_status ON record (status, sequence);
CREATE INDEX record_time ON record (time);
CREATE INDEX record_intent ON record (sequence) WHERE event = 'intent';

CREATE TRIGGER record_is_not_changed BEFORE UPDATE ON record
BEGIN SELECT RAISE(ABORT, 'a record is never changed'); END;
CREATE TRIGGER record_is_not_removed BEFORE DELETE ON record
BEGIN SELECT RAISE(ABORT, 'a record is never removed'); END;

CREATE TABLE head (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    closed_below INTEGER NOT NULL,      -- every intent below this sequence has its outcome
    probes       INTEGER NOT NULL       -- counts the tries whether the store takes a write
) STRICT;
INSERT INTO head VALUES (1, 0, 0);
