CREATE TABLE rand_data (row_id INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, value REAL NOT NULL);
CREATE TABLE ping_sensor (row_id INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, value REAL NOT NULL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250)
INSERT INTO rand_data SELECT i, strftime('%Y-%m-%dT%H:%M:%SZ', 1767225600 + i * 60, 'unixepoch'), (i * 7919) % 1000 / 10.0 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
INSERT INTO ping_sensor SELECT i, strftime('%Y-%m-%dT%H:%M:%SZ', 1767225600 + i * 300, 'unixepoch'), 10 + i % 3 FROM n;
