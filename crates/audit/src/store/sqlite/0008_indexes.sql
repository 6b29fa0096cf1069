-- Every record pays for every index. What a selection reads, it reads by time; how a caller's calls of one tool are counted,
-- is told within the entries of the caller; and most calls end well, so that a reading of those is one of all records.
DROP INDEX record_subject;
DROP INDEX record_tool;
DROP INDEX record_status;
DROP INDEX record_subject_time;
DROP INDEX record_subject_tool_time;
DROP INDEX record_status_time;
CREATE INDEX record_subject_time ON record (subject, time, sequence, tool);
CREATE INDEX record_status_time ON record (status, time) WHERE status <> 'ok';
