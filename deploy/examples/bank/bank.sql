-- A fictional bank with three branches, 60 customers, 120 accounts and past transfers. Amounts are whole euros.

CREATE TABLE branches (
  branch TEXT PRIMARY KEY,
  town   TEXT NOT NULL
);

CREATE TABLE accounts (
  account   TEXT PRIMARY KEY,
  branch    TEXT NOT NULL REFERENCES branches,
  holder    TEXT NOT NULL,
  phone     TEXT NOT NULL,
  opened_on TEXT NOT NULL,
  balance   INTEGER NOT NULL,
  -- Whether the account belongs to an employee. Only the branch's manager sees such accounts.
  of_staff  BOOLEAN NOT NULL
);
CREATE INDEX accounts_of_branch ON accounts (branch);

CREATE TABLE transfers (
  transfer     INTEGER PRIMARY KEY,
  branch       TEXT NOT NULL REFERENCES branches,
  from_account TEXT NOT NULL REFERENCES accounts,
  to_account   TEXT NOT NULL,
  amount       INTEGER NOT NULL CHECK (amount > 0),
  requested_by TEXT NOT NULL
);

INSERT INTO branches VALUES ('B1', 'Rostock'), ('B2', 'Passau'), ('B3', 'Husum');

WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 119)
INSERT INTO accounts
SELECT printf('DE%05d', 40000 + n * 7),
       'B' || (n % 3 + 1),
       CASE n % 6 WHEN 0 THEN 'Greta ' WHEN 1 THEN 'Nils ' WHEN 2 THEN 'Aylin ' WHEN 3 THEN 'Jonas ' WHEN 4 THEN 'Meike ' ELSE 'Tarek ' END
         || CASE n % 5 WHEN 0 THEN 'Petersen' WHEN 1 THEN 'Vogt' WHEN 2 THEN 'Yildiz' WHEN 3 THEN 'Brandt' ELSE 'Sommer' END,
       printf('+49 381 555%04d', n * 37 % 10000),
       printf('%d-%02d-%02d', 1998 + n % 25, n % 12 + 1, n % 28 + 1),
       (n * n * 613 + n * 97) % 250000 - 1500,
       n % 20 = 6
FROM numbers;

INSERT INTO transfers (branch, from_account, to_account, amount, requested_by)
VALUES ('B1', 'DE40000', 'DE40147', 4200, 'teller.ina'),
       ('B1', 'DE40021', 'FR76003', 18000, 'teller.ina'),
       ('B2', 'DE40007', 'DE40028', 950, 'teller.bo');
