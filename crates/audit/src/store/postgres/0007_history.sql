-- For counting the calls that a caller made of a tool.
CREATE INDEX record_subject_tool_time ON audit.record (subject, tool, time);
