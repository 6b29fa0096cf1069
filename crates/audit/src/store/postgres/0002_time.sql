-- For reading by time, page after page; the sequence gives the order of records of one time.
CREATE INDEX record_time_sequence ON audit.record (time, sequence);
CREATE INDEX record_subject_time ON audit.record (subject, time, sequence);
CREATE INDEX record_tool_time ON audit.record (tool, time, sequence);
CREATE INDEX record_status_time ON audit.record (status, time, sequence);
