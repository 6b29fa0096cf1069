-- A call may be run more than once, each time with an execution of its own; of every other event it has one.
DROP TRIGGER record_is_not_changed;
DROP INDEX record_call;
-- The column only repeats what the record itself says.
UPDATE record SET call_id = json_extract(CAST(canonical AS TEXT), '$.call_id') WHERE event = 'execution';
CREATE UNIQUE INDEX record_call
    ON record (call_id, event, (CASE event WHEN 'execution' THEN sequence ELSE 0 END));
CREATE TRIGGER record_is_not_changed BEFORE UPDATE ON record
BEGIN SELECT RAISE(ABORT, 'a record is never changed'); END;
