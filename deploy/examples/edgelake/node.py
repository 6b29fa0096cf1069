#!/usr/bin/env python3
"""A replacement for a real node: answers two of its commands from `data.sql`.

python3 node.py sql DATABASE format = json "SELECT ..."
python3 node.py get columns where dbms = DATABASE and table = TABLE and format = json
python3 node.py create FILE      writes the node's database to a SQLite file
"""

import json
import os
import pathlib
import sqlite3
import sys

DATABASE = "new_company"
DATA = (pathlib.Path(__file__).parent / "data.sql").read_text()


def rows(statement, values=()):
    database = sqlite3.connect(":memory:")
    database.executescript(DATA)
    database.execute("PRAGMA query_only = ON")
    database.row_factory = sqlite3.Row
    return [dict(row) for row in database.execute(statement, values)]


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


def main(command):
    match command:
        case ["create", path]:
            sqlite3.connect(path).executescript(DATA)
        case ["sql", database, "format", "=", "json", statement]:
            if os.environ.get("WARDGATE_HEADER_DESTINATION") != "network":
                fail("the query is not sent to the network")
            if database != DATABASE:
                fail(f"no database {database}")
            print(json.dumps({"Query": rows(statement)}))
        case ["get", "columns", "where", "dbms", "=", database, "and", "table", "=", table, "and", "format", "=", "json"]:
            if database != DATABASE:
                fail(f"no database {database}")
            columns = "SELECT name AS column_name, lower(type) AS data_type FROM pragma_table_info(?)"
            print(json.dumps(rows(columns, [table])))
        case _:
            fail("unknown command")


if __name__ == "__main__":
    main(sys.argv[1:])
