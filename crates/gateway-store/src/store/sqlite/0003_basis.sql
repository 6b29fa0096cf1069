-- Sealed: on what the answer was given. Null: by a gateway that did not keep that.
ALTER TABLE stream ADD COLUMN basis BLOB;
