-- The Merkle tree (RFC 6962) whose leaves are the hashes of the records: how far it was built, and the roots of its full
-- tiles of 256 hashes, which make up the tiles of the next level (c2sp.org/tlog-tiles).
CREATE TABLE audit.tree (
    id         integer PRIMARY KEY CHECK (id = 1),
    size       bigint NOT NULL,         -- records in it
    root       bytea  NOT NULL,         -- over them
    checkpoint text                     -- the newest that was signed
);
INSERT INTO audit.tree VALUES (1, 0, '\xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', NULL);

CREATE TABLE audit.tile_root (
    level    integer NOT NULL,          -- of the tiles that it is a hash of, from 1
    position bigint  NOT NULL,          -- dense, from 0
    root     bytea   NOT NULL,
    PRIMARY KEY (level, position)
);
