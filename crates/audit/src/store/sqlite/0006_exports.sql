-- How far each security tool has taken the record, and which process exports to it until when, in seconds since 1970.
CREATE TABLE export_cursor (
    name          TEXT PRIMARY KEY,
    position      INTEGER NOT NULL,     -- of the next record to send
    holder        TEXT    NOT NULL,
    claimed_until REAL    NOT NULL
) STRICT, WITHOUT ROWID;
