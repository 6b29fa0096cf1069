-- The newest checkpoint that a quorum of witnesses cosigned, with their cosignatures, and its number of records.
ALTER TABLE tree ADD COLUMN cosigned TEXT;
ALTER TABLE tree ADD COLUMN cosigned_size INTEGER NOT NULL DEFAULT 0;
