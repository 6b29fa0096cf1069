-- How far everything is moved from a former master key to the one in force. Without a row, nothing is under another key.
CREATE TABLE rekeying (
    number       INTEGER PRIMARY KEY CHECK (number = 1), -- there is one
    former       BLOB    NOT NULL,      -- the former key, by a digest of it
    conversation INTEGER NOT NULL,      -- up to this number everything is moved
    position     INTEGER NOT NULL       -- and of the next conversation, the key and what is up to this position
) STRICT;
