-- How far each security tool has taken the record, and which process exports to it until when, in seconds since 1970.
CREATE TABLE audit.export_cursor (
    name          text PRIMARY KEY,
    position      bigint NOT NULL,      -- of the next record to send
    holder        text   NOT NULL,
    claimed_until double precision NOT NULL
);
