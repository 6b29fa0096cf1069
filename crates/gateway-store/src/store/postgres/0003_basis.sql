-- Sealed: on what the answer was given. Null: by a gateway that did not keep that.
ALTER TABLE gateway.stream ADD COLUMN basis bytea;
