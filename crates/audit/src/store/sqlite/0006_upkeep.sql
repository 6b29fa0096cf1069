-- How far each security tool has taken the record, and which process exports to it until when, in seconds since 1970.
CREATE TABLE export_cursor (
    name          TEXT PRIMARY KEY,
    position      INTEGER NOT NULL,     -- of the next record to send
    holder        TEXT    NOT NULL,
    claimed_until REAL    NOT NULL
) STRICT, WITHOUT ROWID;

-- Records below the minimum index were removed, in whole bundles of 256 (c2sp.org/tlog-tiles). What removes them takes the
-- trigger away that refuses it, within one transaction.
CREATE TABLE retention (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    minimum_index   INTEGER NOT NULL,
    hold_generation INTEGER NOT NULL    -- counts the changes of legal holds
) STRICT;
INSERT INTO retention VALUES (1, 0, 0);

-- The leaf hashes of the records of each bundle that was removed: every proof goes on.
CREATE TABLE pruned_tile (
    position INTEGER PRIMARY KEY,
    hashes   BLOB NOT NULL
) STRICT;

-- What must not be removed: all, or what concerns a tenant or a data subject.
CREATE TABLE legal_hold (
    name   TEXT PRIMARY KEY,
    tenant TEXT,                        -- of the callers, also of a data subject
    tag    BLOB,                        -- of a data subject
    set_by TEXT    NOT NULL,
    set_in TEXT,                        -- the tenant of who set it; null: of none
    set_at INTEGER NOT NULL             -- microseconds since 1970
) STRICT, WITHOUT ROWID;

CREATE TRIGGER legal_hold_is_set AFTER INSERT ON legal_hold
BEGIN UPDATE retention SET hold_generation = hold_generation + 1; END;
CREATE TRIGGER legal_hold_is_changed AFTER UPDATE ON legal_hold
BEGIN UPDATE retention SET hold_generation = hold_generation + 1; END;
CREATE TRIGGER legal_hold_is_lifted AFTER DELETE ON legal_hold
BEGIN UPDATE retention SET hold_generation = hold_generation + 1; END;
