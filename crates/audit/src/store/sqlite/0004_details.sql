-- What is known of a call besides its record, sealed: it opens with the keys of all data subjects whom the call concerned.
ALTER TABLE record ADD COLUMN details BLOB;
-- How many data subjects the record names by their tags, keyed digests.
ALTER TABLE record ADD COLUMN data_subjects INTEGER;

-- Which calls released rows of whom.
CREATE TABLE data_subject (
    tag      BLOB    NOT NULL,
    time     INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (tag, time, sequence)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER record_is_indexed AFTER INSERT ON record WHEN NEW.data_subjects > 0
BEGIN
    INSERT INTO data_subject (tag, time, sequence)
    SELECT unhex(subject.value ->> 'hmac'), NEW.time, NEW.sequence
    FROM json_each(CAST(NEW.canonical AS TEXT), '$.data_subjects') AS subject;
END;

-- The key of each data subject, wrapped. To remove one is to erase the details that need it.
CREATE TABLE data_subject_key (
    tag     BLOB PRIMARY KEY,
    wrapped BLOB NOT NULL
) STRICT, WITHOUT ROWID;
