-- Every record pays for every index. What a selection reads, it reads by time; how a caller's calls of one tool are counted,
-- is told within the entries of the caller; and most calls end well, so that a reading of those is one of all records.
DROP INDEX audit.record_subject;
DROP INDEX audit.record_tool;
DROP INDEX audit.record_status;
DROP INDEX audit.record_time;
DROP INDEX audit.record_subject_time;
DROP INDEX audit.record_subject_tool_time;
DROP INDEX audit.record_status_time;
CREATE INDEX record_subject_time ON audit.record (subject, time, sequence, tool);
CREATE INDEX record_status_time ON audit.record (status, time, sequence) WHERE status <> 'ok';
