-- Each index makes every append slower. Selections are read by time. Calls of one tool are counted in the index entries of their
-- caller. Most calls succeed, so that a selection of those reads all records anyway.
CREATE INDEX record_caller_time ON record (subject, time, sequence, tool);
CREATE INDEX record_failure_time ON record (status, time) WHERE status <> 'ok';
DROP INDEX record_subject;
DROP INDEX record_tool;
DROP INDEX record_status;
DROP INDEX record_subject_time;
DROP INDEX record_subject_tool_time;
DROP INDEX record_status_time;
