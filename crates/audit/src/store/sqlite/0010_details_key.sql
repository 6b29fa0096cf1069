-- The master key that encrypts the keys of data subjects. Without a row, it is the key that decrypts them, and the key of the tags
-- is derived from it.
CREATE TABLE details_key (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    known_by BLOB NOT NULL, -- identifies the master key that encrypts new keys
    former   BLOB,          -- identifies the master key that keys are being moved from; null: no rotation is in progress
    position BLOB NOT NULL, -- the tag up to which keys were moved, or one zero byte
    tag_key  BLOB NOT NULL  -- the key of the tags, encrypted under the master key
) STRICT;
