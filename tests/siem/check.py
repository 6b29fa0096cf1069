"""Compares the data of each security tool with the audit log, as soon as it contains LEAST records of calls:
check.py LEAST WARDGATE DIRECTORY"""

import hashlib
import json
import re
import subprocess
import sys
import time

from jsonschema import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

least, wardgate, directory = int(sys.argv[1]), sys.argv[2], sys.argv[3]
schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version="1.8.0"))
validators = {}


def say(good, what):
    print("ok   " if good else "FAIL ", what)


def record():
    """The event ids of all records, in order, and the leaf hash of the record of each first event."""
    query = [wardgate, "audit", "query", "--offline", "--data-dir", f"{directory}/data", "--output", "jsonl"]
    lines = subprocess.run(query, capture_output=True, check=True)
    uids, hashes = [], {}
    for line in lines.stdout.splitlines():
        line = json.loads(line)
        uid = f"example.com/audit#{line['sequence']}"
        parts = [f"{uid}.{index}" for index, _ in enumerate(line.get("counts", []))] or [uid]
        hashes[parts[0]] = line["leaf_hash"]
        uids += parts
    return uids, hashes


def read(name):
    with open(f"{directory}/{name}.out", encoding="utf-8") as file:
        return file.read()


def syslog(kind):
    """The messages of one format, without the header fields that the receiver prints."""
    pattern = re.compile(r"\S+ wardgate (\S+) \S+\.(?:info|notice|warning|crit) +(.*)")
    found = (pattern.fullmatch(line) for line in read("syslog").splitlines())
    messages = [match[2] for match in found if match]
    return [message for message in messages if message.startswith("CEF:") == (kind == "cef")]


def collector():
    return re.findall(r"^Body: Str\((.*)\)$", read("otlp"), re.MULTILINE)


def uid_of_cef(line):
    return re.search(r" externalId=(\S+)", line)[1]


def uid_of_ocsf(line):
    return json.loads(line)["metadata"]["uid"]


def first_times(uids):
    return list(dict.fromkeys(uids))


def faults(event, hashes):
    uid = event["class_uid"]
    if uid not in validators:
        validators[uid] = Draft202012Validator(schema.get_class_schema(schema.lookup_class_name_from_uid(uid)))
    for fault in validators[uid].iter_errors(event):
        yield f"class {uid}: {'/'.join(map(str, fault.absolute_path))}: {fault.message}"
    raw, named = event.get("raw_data"), event["metadata"]
    if raw is None:
        return
    hashed = hashlib.sha256(b"\0" + raw.encode()).hexdigest()
    if not hashed == hashes[named["uid"]] == named["original_event_uid"]:
        yield f"{named['uid']}: raw_data is not the record"


TOOLS = {
    "rsyslog, CEF": (lambda: syslog("cef"), uid_of_cef),
    "rsyslog, OCSF": (lambda: syslog("ocsf"), uid_of_ocsf),
    "OpenTelemetry collector": (collector, uid_of_ocsf),
    "webhook": (lambda: read("webhook").splitlines(), uid_of_ocsf),
}

ends = time.monotonic() + 60
while True:
    wanted, hashes = record()
    had = {}
    for name, (lines, uid) in TOOLS.items():
        try:
            had[name] = first_times([uid(line) for line in lines()])
        except (FileNotFoundError, ValueError):
            had[name] = []
    if len(wanted) >= least and all(seen == wanted for seen in had.values()) or time.monotonic() > ends:
        break
    time.sleep(0.5)

say(len(wanted) >= least, f"{len(wanted)} events are on record")
for name, seen in had.items():
    say(seen == wanted, f"{name} has every event, the first times in order" if seen == wanted else f"{name}: {seen[:20]} instead of {wanted[:20]}")
for name in ("rsyslog, OCSF", "OpenTelemetry collector", "webhook"):
    events = [json.loads(line) for line in TOOLS[name][0]()]
    wrong = [fault for event in events for fault in faults(event, hashes)]
    say(events and not wrong, f"{name}: {len(events)} events are of OCSF 1.8.0" + (f": {wrong[:3]}" if wrong else ""))
    classes = {event["class_uid"] for event in events}
    say({2004, 6003, 3002, 3004} <= classes, f"{name}: classes {sorted(classes)}")
