"""The inputs of a release and the objects that Helm renders.

The release is the hospital demo with two additional tools: the rows of `write_line` are the effects that the ledger counts;
`read_slowly` is still running when a pod is stopped.
"""

import base64
import os
import subprocess
from pathlib import Path

import yaml

ROOT, SCRATCH, WARDGATE = Path(os.environ["ROOT"]), Path(os.environ["SCRATCH"]), os.environ["WARDGATE"]
# The binary from which an upgrade starts, and its commit. If empty, the same binary.
FROM, FROM_COMMIT = os.environ.get("FROM", ""), os.environ.get("FROM_COMMIT", "")
NEWEST, EARLIER = "newest", "earlier"
# The binary of each image tag.
IMAGES = {NEWEST: SCRATCH / "image", EARLIER: SCRATCH / ("image-from" if FROM else "image")}
DEMO = SCRATCH / "demo"
HOSPITAL = ROOT / "deploy/examples/hospital"
CHART = ROOT / "deploy/helm/wardgate"
SERVICES = ["gateway", "policy", "tool-runner", "audit", "memory"]
# The services with a store, by their keys in the values. Each connects with its own role; another role owns the tables.
STORES = {"gateway": "gateway", "tool-runner": "toolRunner", "audit": "audit", "memory": "memory"}
OWNER = "wardgate_owner"
ROLES = {name: f"wardgate_{name.replace('-', '_')}" for name in STORES}
# Each password until the first rotation.
PASSWORD = "first"
MAKE_ROLES = "; ".join(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'" for role in [OWNER, *ROLES.values()])
MAKE_ROLES += f"; GRANT CREATE ON DATABASE postgres TO {OWNER}"
# Time after which an unfinished intent is closed, more than twice the time limit of the tools.
UNKNOWN_AFTER = 20

KEYS = "wardgate-keys"

# The database of the effects. Its tools connect as one role; a rotation replaces the role and its password by the other one.
LEDGER_ROLES = ["ledger_a", "ledger_b"]
EFFECTS = "CREATE TABLE line (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, marker text NOT NULL)"
EFFECTS += "".join(f"; CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT, INSERT ON line TO {role}" for role in LEDGER_ROLES)
LEDGER_URL = "/etc/wardgate/ledger/url"
MORE_TOOLS = yaml.safe_load("""
- name: write_line
  description: Adds a line.
  tags: [staff]
  time_limit: 5s
  input_schema:
    type: object
    properties: { marker: { type: string } }
    required: [marker]
  execute: { type: sql, source: ledger, statement: INSERT INTO line (marker) VALUES (:marker) RETURNING id }
  result: { classes: { id: none } }
- name: read_slowly
  description: Thinks for a while.
  tags: [staff]
  annotations: { readOnlyHint: true }
  time_limit: 5s
  input_schema: { type: object, properties: {} }
  execute: { type: sql, source: ledger, statement: SELECT 1 AS id FROM pg_sleep(1) }
  result: { classes: { id: none } }
""")


def secret(name, files):
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    return {"kind": "Secret", "metadata": {"name": name}, "data": data}


def config_map(name, files):
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": files}


def token(issuer=DEMO):
    """A token of the local issuer, whose key is in the data directory `issuer`."""
    words = ["token", "--data-dir", issuer, "--sub", "dr.yenji", "--role", "Doctor", "--ttl", "4h"]
    return subprocess.run([WARDGATE, *words], check=True, capture_output=True, text=True).stdout.strip()


def mac_key():
    return bytes.fromhex((DEMO / "keys/audit-mac.key").read_text().strip())


def tools():
    # A ConfigMap cannot contain directories.
    catalogue = yaml.safe_load((HOSPITAL / "tools.yaml").read_text().replace("guides/triage.md", "triage.md"))
    catalogue["sources"]["ledger"] = {"type": "postgres", "url": f"${{file:{LEDGER_URL}}}"}
    catalogue["tools"] += MORE_TOOLS
    return {"tools.yaml": yaml.safe_dump(catalogue, sort_keys=False), "triage.md": (HOSPITAL / "guides/triage.md").read_text()}


def given(effects, stores, audit):
    """The objects that must exist before the release."""
    yield secret(KEYS, {path.name: path.read_bytes() for path in (DEMO / "keys").iterdir()})
    at = {name: audit if name == "audit" else stores for name in STORES}
    yield secret("wardgate-stores", {name: at[name].url(ROLES[name]).encode() for name in STORES})
    yield secret("wardgate-owner", {name: at[name].url(OWNER, PASSWORD).encode() for name in STORES})
    yield secret("wardgate-passwords", {name: PASSWORD.encode() for name in STORES})
    # The network is private, so the URL disables TLS.
    yield secret("ledger", {"url": effects.url(LEDGER_ROLES[0], PASSWORD).encode()})
    authority = (DEMO / "certs/ca.pem").read_bytes()
    for name in SERVICES:
        own = {"tls.crt": DEMO / f"certs/{name}.pem", "tls.key": DEMO / f"certs/{name}.key"}
        yield secret(f"{name}-tls", {"ca.crt": authority, **{key: path.read_bytes() for key, path in own.items()}})
    yield config_map("policies", {path.name: path.read_text() for path in (HOSPITAL / "policies").glob("*.cedar*")})
    yield config_map("tools", tools())
    yield secret("doctor", {"token": token().encode()})


def values(replicas=2):
    """The required values and those of the demo: its database file, the keys of its issuer, and the database of the effects."""
    least = yaml.safe_load((ROOT / "tests/chart/values/least.yaml").read_text())
    for path in (DEMO / "hospital.sqlite", DEMO):
        path.chmod(0o777)
    issuer = {
        "issuer": "https://issuer.wardgate.internal",
        "audience": "wardgate",
        "jwks": {"file": "../issuer/jwks.json"},
        "attributes": {"ward": "ward", "patient_id": "patient_id"},
    }
    keys = {"secretName": "wardgate-keys", "items": [{"key": "jwks.json", "path": "jwks.json"}]}
    # The services that verify tokens: the gateway and the policy service.
    issuer_keys = {
        "extraVolumes": [{"name": "issuer", "secret": keys}],
        "extraVolumeMounts": [{"name": "issuer", "mountPath": "/etc/wardgate/issuer", "readOnly": True}],
    }
    return {
        **least,
        "config": {
            "gateway": {"auth": {"issuers": [issuer]}, "limits": {"connections": 4096}},
            "audit": {"unknown_after_seconds": UNKNOWN_AFTER},
        },
        "defaults": {"replicaCount": replicas},
        "database": {**least["database"], "passwordSecret": "wardgate-passwords"},
        "image": {"tag": NEWEST},
        "migrations": {
            "enabled": True,
            "existingSecret": "wardgate-owner",
            "roles": {STORES[name]: role for name, role in ROLES.items()},
        },
        "gateway": issuer_keys,
        "policy": issuer_keys,
        "toolRunner": {
            "extraEnv": [
                {"name": "HOSPITAL_DB_URL", "value": "sqlite:/data/hospital.sqlite"},
            ],
            "extraVolumes": [
                {"name": "data", "hostPath": {"path": str(DEMO)}},
                {"name": "ledger", "secret": {"secretName": "ledger"}},
            ],
            "extraVolumeMounts": [
                {"name": "data", "mountPath": "/data"},
                {"name": "ledger", "mountPath": str(Path(LEDGER_URL).parent), "readOnly": True},
            ],
        },
        "test": {"tokenSecret": "doctor", "tool": "get_medical_records", "arguments": {"patient_id": "NUGWI"}},
    }


def rendered(given_values, chart=CHART):
    file = SCRATCH / "values.yaml"
    file.write_text(yaml.safe_dump(given_values))
    command = ["helm", "template", "demo", chart, "--values", file]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def earlier_chart():
    """The chart from which an upgrade starts, and its commit: that of the earlier binary, or the one before the chart's last
    change. None if the history does not contain it."""
    git = ["git", "-C", ROOT]
    log = subprocess.run([*git, "log", "--format=%h", "-2", "--", CHART], capture_output=True, text=True)
    commit = FROM_COMMIT or "".join(log.stdout.split()[1:])
    if not commit:
        return None, ""
    target = SCRATCH / "earlier"
    target.mkdir(exist_ok=True)
    archive = subprocess.run([*git, "archive", commit, CHART.relative_to(ROOT)], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", target], input=archive, check=True)
    return target / CHART.relative_to(ROOT), commit
