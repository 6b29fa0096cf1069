-- Append-only: the trigger stops a slip of the hand, the Merkle tree over leaf_hash shows a will.
CREATE TABLE audit.record (
    sequence  bigint PRIMARY KEY,       -- dense, from 0
    leaf_hash bytea  NOT NULL,          -- RFC 6962
    canonical bytea  NOT NULL,          -- the record, RFC 8785
    event     text   NOT NULL,          -- the rest repeats parts of it for queries
    time      bigint NOT NULL,          -- microseconds since 1970
    call_id   text COLLATE "C",
    subject   text COLLATE "C",
    tool      text COLLATE "C",
    status    text
);

-- One intent and one outcome for each call.
CREATE UNIQUE INDEX record_call ON audit.record (call_id, event);
CREATE INDEX record_subject ON audit.record (subject, sequence);
CREATE INDEX record_tool ON audit.record (tool, sequence);
CREATE INDEX record_status ON audit.record (status, sequence);
CREATE INDEX record_time ON audit.record (time);
CREATE INDEX record_intent ON audit.record (sequence) WHERE event = 'intent';

CREATE FUNCTION audit.refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'a record is never changed or removed'; END $$;
CREATE TRIGGER record_is_not_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON audit.record
FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

-- Rewritten by every batch: room in the page keeps the row's versions there and the index untouched.
CREATE TABLE audit.head (
    id           integer PRIMARY KEY CHECK (id = 1),
    size         bigint NOT NULL,       -- number of records, and the sequence of the next
    closed_below bigint NOT NULL,       -- every intent below this sequence has its outcome
    probes       bigint NOT NULL        -- counts the tries whether the store takes a write
) WITH (fillfactor = 10);
INSERT INTO audit.head VALUES (1, 0, 0, 0);
