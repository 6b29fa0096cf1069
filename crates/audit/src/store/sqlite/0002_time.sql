-- For reading by time, page after page: each entry ends with the sequence, and so gives the order of records of one time.
CREATE INDEX record_subject_time ON record (subject, time);
CREATE INDEX record_tool_time ON record (tool, time);
CREATE INDEX record_status_time ON record (status, time);
