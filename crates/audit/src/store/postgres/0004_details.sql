-- What is known of a call besides its record, sealed: it opens with the keys of all data subjects whom the call concerned.
ALTER TABLE audit.record ADD COLUMN details bytea;
-- How many data subjects the record names by their tags, keyed digests.
ALTER TABLE audit.record ADD COLUMN data_subjects bigint;

-- Which calls released rows of whom.
CREATE TABLE audit.data_subject (
    tag      bytea  NOT NULL,
    time     bigint NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (tag, time, sequence)
);

-- The key of each data subject, wrapped. To remove one is to erase the details that need it.
CREATE TABLE audit.data_subject_key (
    tag     bytea PRIMARY KEY,
    wrapped bytea NOT NULL
);
