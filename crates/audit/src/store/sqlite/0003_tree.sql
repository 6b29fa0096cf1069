-- The Merkle tree (RFC 6962) whose leaves are the hashes of the records: how far it was built, and the roots of its full
-- tiles of 256 hashes, which make up the tiles of the next level (c2sp.org/tlog-tiles).
CREATE TABLE tree (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    size       INTEGER NOT NULL,        -- records in it
    root       BLOB    NOT NULL,        -- over them
    checkpoint TEXT                     -- the newest that was signed
) STRICT;
INSERT INTO tree VALUES (1, 0, x'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', NULL);

CREATE TABLE tile_root (
    level    INTEGER NOT NULL,          -- of the tiles that it is a hash of, from 1
    position INTEGER NOT NULL,          -- dense, from 0
    root     BLOB    NOT NULL,
    PRIMARY KEY (level, position)
) STRICT, WITHOUT ROWID;
