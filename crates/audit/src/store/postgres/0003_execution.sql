-- A call may be run more than once, each time with an execution of its own; of every other event it has one.
ALTER TABLE audit.record DISABLE TRIGGER record_is_not_changed;
DROP INDEX audit.record_call;
-- The column only repeats what the record itself says.
UPDATE audit.record SET call_id = convert_from(canonical, 'UTF8')::json ->> 'call_id' WHERE event = 'execution';
CREATE UNIQUE INDEX record_call
    ON audit.record (call_id, event, (CASE event WHEN 'execution' THEN sequence ELSE 0 END));
ALTER TABLE audit.record ENABLE TRIGGER record_is_not_changed;
