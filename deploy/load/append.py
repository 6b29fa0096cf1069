"""Compares `Append` of the audit service with the cost of its stores alone. Started by deploy/load/append.

    ghz, 1 · 16 · 256 in flight ──mTLS──▶ wardgate audit ──▶ SQLite │ PostgreSQL
    as many bytes written to a file and flushed, one at a time                        fsync
    as many bytes inserted and committed, in SQLite by one, in PostgreSQL by as many  INSERT

Each round measures all of them in turn, and the plain flushes and INSERTs both before and after `Append`. The table shows medians.
Rates depend on the disk as much as on Wardgate: compare the ratios.
"""

import argparse
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import time

from load import Process, append_records, free_ports

# Approximate size of a record in its canonical form, in bytes.
RECORD = 900
# Maximum number of connections that ghz uses.
CONNECTIONS = 4


class AuditService:
    """`wardgate audit` with one store, without the other services."""

    def __init__(self, arguments, name, store):
        data, self.name = arguments.out / "data", name
        self.port, self.probes = free_ports(2)
        certs = {"cert": "certs/audit.pem", "key": "certs/audit.key", "ca": "certs/ca.pem"}
        keys = {"mac_key_file": "keys/audit-mac.key", "log_key_file": "keys/audit-log.pem", "details_key_file": "keys/audit-details.key"}
        section = {"listen": f"127.0.0.1:{self.port}", "probes": f"127.0.0.1:{self.probes}", "tls": certs, "store": store, **keys}
        config = data / f"audit-{name}.yaml"
        # JSON is valid YAML.
        config.write_text(json.dumps({"telemetry": {"log": "warn"}, "audit": section}, indent=2))
        self.process = Process(data / f"audit-{name}.log", [arguments.wardgate, "audit", "--config", config])

    def append(self, arguments, in_flight):
        options = ["--concurrency", in_flight, "--connections", min(in_flight, CONNECTIONS)]
        return append_records(arguments, self.port, self.probes, arguments.seconds, *map(str, options))


def prepare(arguments):
    """Creates keys, certificates, and the request that ghz sends: the outcome of a call, with a new call id each time."""
    data = arguments.out / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    Process(data / "up.log", [arguments.wardgate, "up", "--data-dir", data, "--listen", "127.0.0.1:0"]).stop()
    subprocess.run([arguments.wardgate, "certs", "dev", "--data-dir", data], check=True, stdout=subprocess.DEVNULL)
    digest = base64.b64encode(bytes(range(32))).decode()
    call = {
        "callId": "{{newUUID}}",
        "issuer": "https://issuer.wardgate.internal",
        "subject": "dr.yenji",
        "roles": ["Doctor"],
        "tokenId": "load",
        "clientIp": "192.0.2.1",
        "protocol": "2026-07-28",
        "requestedTool": "get_medical_records",
        "tool": "get_medical_records",
        "definitionDigest": digest,
        "argumentsDigest": digest,
        "decisionId": "01a21d31-c794-7d35-94c7-e8dc9983a5d7",
        "policyHash": digest,
        "policies": ["doctor-calls-clinical-and-staff-tools", "doctor-reads-records-in-their-care"],
    }
    outcome = {"call": call, "status": "STATUS_OK", "rows": 2, "resultDigest": digest, "duration": "0.002s"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    request = {"records": [{"record": {"time": now, "outcome": outcome}}]}
    (data / "append.json").write_text(json.dumps([request]))


def per_second(seconds, step):
    """The number of sequential executions of `step` per second."""
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        step()
        count += 1
    return count / (time.monotonic() - began)


def flushes(arguments):
    with open(arguments.out / "data/flushed", "wb", buffering=0) as appended:

        def step():
            appended.write(bytes(RECORD))
            os.fdatasync(appended.fileno())

        return per_second(arguments.seconds, step)


def sqlite_inserts(arguments, _in_flight):
    """INSERTs with the durability of the audit log: each commit is flushed."""
    path = arguments.out / "data/bare.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, record BLOB NOT NULL)")
        return per_second(arguments.seconds, lambda: database.execute("INSERT INTO bare (record) VALUES (?)", (bytes(RECORD),)))


def postgres_inserts(arguments, in_flight):
    script = arguments.out / "data/insert.sql"
    script.write_text(f"INSERT INTO bare (record) VALUES ('{'r' * RECORD}');\n")
    sql = "CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, record text NOT NULL)"
    subprocess.run([arguments.postgres_bin / "psql", "-qc", sql, arguments.database], check=True, stderr=subprocess.DEVNULL)
    words = ["-n", "-M", "prepared", "-f", script, "-c", str(in_flight), "-j", str(min(in_flight, 4)), "-T", str(arguments.seconds)]
    done = subprocess.run([arguments.postgres_bin / "pgbench", *words, arguments.database], check=True, capture_output=True, text=True)
    return float(re.search(r"tps = ([0-9.]+)", done.stdout)[1])


STORES = {"SQLite": sqlite_inserts, "PostgreSQL": postgres_inserts}


def measure(arguments, services):
    """Runs the rounds for each store and number of requests in flight, each with its own flushes and inserts."""
    rows = {}
    for number in range(arguments.rounds):
        for name, service in services.items():
            for in_flight in arguments.in_flight:
                # Measured before and after, because the speed of a shared disk varies.
                bare = {"fsync": [flushes(arguments)], "insert": [STORES[name](arguments, in_flight)]}
                append = service.append(arguments, in_flight)
                bare["insert"].append(STORES[name](arguments, in_flight))
                bare["fsync"].append(flushes(arguments))
                row = {key: statistics.mean(rates) for key, rates in bare.items()}
                row |= {"append": append["per_second"], "p50_ms": append["p50_ms"], "p99_ms": append["p99_ms"]}
                row["of_fsync"], row["of_insert"] = row["append"] / row["fsync"], row["append"] / row["insert"]
                rows.setdefault((name, in_flight), []).append(row)
        print(f"round {number + 1} of {arguments.rounds}", flush=True)
    return {key: {field: statistics.median(row[field] for row in found) for field in found[0]} for key, found in rows.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("root", "out", "wardgate", "ghz", "postgres-bin"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--database", required=True, help="URL of a PostgreSQL that nobody else uses")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 16, 256], metavar="N")
    arguments = parser.parse_args()
    prepare(arguments)
    services = {}
    try:
        for name, store in {"SQLite": "sqlite:appended.sqlite", "PostgreSQL": arguments.database}.items():
            services[name] = AuditService(arguments, name, store)
            # Warm-up of connections, caches and statements.
            services[name].append(argparse.Namespace(**{**vars(arguments), "seconds": 1}), CONNECTIONS)
        figures = measure(arguments, services)
    finally:
        for service in services.values():
            service.process.stop()
    print(f"\n{'':<12}in flight   appends/s    fsync/s   INSERT/s   ÷ fsync   ÷ INSERT    p50 ms    p99 ms")
    for (name, in_flight), row in figures.items():
        rates = f"{row['append']:>12.0f}{row['fsync']:>11.0f}{row['insert']:>11.0f}"
        print(f"{name:<12}{in_flight:>9}{rates}{row['of_fsync']:>10.2f}{row['of_insert']:>11.2f}{row['p50_ms']:>10.2f}{row['p99_ms']:>10.2f}")
    file = arguments.out / "append.json"
    file.write_text(json.dumps([{"store": name, "in_flight": count, **row} for (name, count), row in figures.items()], indent=2) + "\n")
    print(f"\nas JSON: {file}")


if __name__ == "__main__":
    main()
