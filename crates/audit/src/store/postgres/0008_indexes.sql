-- Each index makes every append slower. Selections are read by time. Calls of one tool are counted in the index entries of their
-- caller. Most calls succeed, so that a selection of those reads all records anyway. While the first two are made, records can be
-- read; only what follows them locks the table for readers too.
CREATE INDEX record_caller_time ON audit.record (subject, time, sequence, tool);
CREATE INDEX record_failure_time ON audit.record (status, time, sequence) WHERE status <> 'ok';
DROP INDEX audit.record_subject;
DROP INDEX audit.record_tool;
DROP INDEX audit.record_status;
DROP INDEX audit.record_time;
DROP INDEX audit.record_subject_time;
DROP INDEX audit.record_subject_tool_time;
DROP INDEX audit.record_status_time;
