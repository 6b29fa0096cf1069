-- How far everything is moved from a former master key to the one in force. Without a row, nothing is under another key.
CREATE TABLE memory.rekeying (
    number       bigint PRIMARY KEY CHECK (number = 1), -- there is one
    former       bytea  NOT NULL,      -- the former key, by a digest of it
    conversation bigint NOT NULL,      -- up to this number everything is moved
    position     bigint NOT NULL       -- and of the next conversation, the key and what is up to this position
);
