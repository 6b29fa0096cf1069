-- The newest checkpoint that a quorum of witnesses cosigned, with their cosignatures, and its number of records.
ALTER TABLE audit.tree ADD COLUMN cosigned text, ADD COLUMN cosigned_size bigint NOT NULL DEFAULT 0;
