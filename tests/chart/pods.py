"""Journeys of a release: installed, called, restarted, hurt. Started by tests/chart/pods, which says what it needs."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import yaml

from cluster import BRIDGE, Cluster, sh

ROOT, SCRATCH = Path(os.environ["ROOT"]), Path(os.environ["SCRATCH"])
WARDGATE, POSTGRES = os.environ["WARDGATE"], Path(os.environ["POSTGRES_BIN"])
DEMO = SCRATCH / "demo"
HOSPITAL = ROOT / "deploy/examples/hospital"
SERVICES = ["gateway", "policy", "tool-runner", "audit", "memory"]


class Database:
    """A PostgreSQL that the pods reach."""

    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(dir="/tmp"))
        shutil.chown(self.directory, "nobody")
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        with open(f"{self.data}/pg_hba.conf", "a") as hba:
            hba.write("host all all 10.77.0.0/16 trust\n")
        self.start()

    @property
    def data(self):
        return f"{self.directory}/data"

    def run(self, tool, *words):
        command = ["setsid", "--wait", "runuser", "-u", "nobody", "--", str(POSTGRES / tool), *map(str, words)]
        return subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def start(self):
        options = f"-h {BRIDGE} -p 5432 -k {self.directory} -c max_connections=300"
        self.run("pg_ctl", "-D", self.data, "-w", "-s", "-l", f"{self.directory}/log", "-o", options, "start")

    def stop(self, mode="immediate"):
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-s", "-w", "stop")

    def query(self, statement):
        command = [str(POSTGRES / "psql"), "-h", BRIDGE, "-U", "postgres", "-At", "-c", statement, "postgres"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def close(self):
        subprocess.run(["pkill", "-9", "-f", self.data], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


def secret(name, files):
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    return {"kind": "Secret", "metadata": {"name": name}, "data": data}


def config_map(name, directory):
    data = {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def token(*words):
    made = subprocess.run([WARDGATE, "token", "--data-dir", DEMO, *words], check=True, capture_output=True, text=True)
    return made.stdout.strip()


def given():
    """What an operator makes before the release."""
    keys = {path.name: path.read_bytes() for path in (DEMO / "keys").iterdir()}
    url = f"postgres://postgres@{BRIDGE}/postgres".encode()
    yield secret("wardgate-keys", keys)
    yield secret("wardgate-stores", {name: url for name in ("gateway", "tool-runner", "audit", "memory")})
    authority = (DEMO / "certs/ca.pem").read_bytes()
    for name in SERVICES:
        own = {"tls.crt": DEMO / f"certs/{name}.pem", "tls.key": DEMO / f"certs/{name}.key"}
        files = {key: path.read_bytes() for key, path in own.items()}
        yield secret(f"{name}-tls", {"ca.crt": authority, **files})
    yield config_map("policies", HOSPITAL / "policies")
    # A ConfigMap has no directories.
    text = (HOSPITAL / "tools.yaml").read_text().replace("guides/triage.md", "triage.md")
    guide = (HOSPITAL / "guides/triage.md").read_text()
    yield {"kind": "ConfigMap", "metadata": {"name": "tools"}, "data": {"tools.yaml": text, "triage.md": guide}}
    yield secret("doctor", {"token": token("--sub", "dr.yenji", "--role", "Doctor", "--ttl", "3h").encode()})


def values():
    """The least, and what the demo needs: its database file and its issuer's keys."""
    least = yaml.safe_load((ROOT / "tests/chart/values/least.yaml").read_text())
    database = DEMO / "hospital.sqlite"
    for path in (database, DEMO):
        path.chmod(0o777)
    issuer = {
        "issuer": "https://issuer.wardgate.internal",
        "audience": "wardgate",
        "jwks": {"file": "../issuer/jwks.json"},
        "attributes": {"ward": "ward", "patient_id": "patient_id"},
    }
    return {
        **least,
        "config": {"gateway": {"auth": {"issuers": [issuer]}, "limits": {"connections": 4096}}},
        "defaults": {"replicaCount": 2},
        "gateway": {
            "extraVolumes": [{"name": "issuer", "secret": {"secretName": "wardgate-keys", "items": [{"key": "jwks.json", "path": "jwks.json"}]}}],
            "extraVolumeMounts": [{"name": "issuer", "mountPath": "/etc/wardgate/issuer", "readOnly": True}],
        },
        "toolRunner": {
            "extraEnv": [{"name": "HOSPITAL_DB_URL", "value": "sqlite:/data/hospital.sqlite"}],
            "extraVolumes": [{"name": "data", "hostPath": {"path": str(DEMO)}}],
            "extraVolumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        "test": {"tokenSecret": "doctor", "tool": "get_medical_records", "arguments": {"patient_id": "NUGWI"}},
    }


def rendered():
    file = SCRATCH / "values.yaml"
    file.write_text(yaml.safe_dump(values()))
    chart = ROOT / "deploy/helm/wardgate"
    text = subprocess.run(["helm", "template", "demo", chart, "--values", file], check=True, capture_output=True, text=True).stdout
    return [document for document in yaml.safe_load_all(text) if document]


class Journeys:
    def __init__(self):
        self.database = Database()
        self.cluster = Cluster(SCRATCH / "image", SCRATCH)
        manifests = rendered()
        self.hook = next(item for item in manifests if "helm.sh/hook" in item["metadata"].get("annotations", {}))
        self.cluster.apply([*given(), *(item for item in manifests if item is not self.hook)])
        self.cluster.wait_ready()
        self.gateway = self.cluster.services["demo-wardgate-gateway"].network.address

    def install(self):
        """Every pod is ready, and the release's own test makes a governed call that is on record."""
        said = self.cluster.run_pod(self.hook)
        result = next(line for line in said.splitlines() if '"dev.wardgate/receipt"' in line)
        assert "NUGWI" in result, result
        records = self.database.query("SELECT count(*) FROM audit.record")
        assert int(records) >= 1, records

    def bench(self, seconds, callers=8):
        """A load from outside, running; gives its report when it is waited for."""
        file = SCRATCH / "doctor.token"
        file.write_text(token("--sub", "dr.yenji", "--role", "Doctor", "--ttl", "3h"))
        words = ["bench", "get_medical_records", "--arguments", '{"patient_id":"NUGWI"}', "--json", "--warm-up", "0"]
        words += ["--duration", str(seconds), "--callers", str(callers), "--url", f"http://{self.gateway}", "--token-file", str(file)]
        return subprocess.Popen([WARDGATE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def report(self, load):
        out, error = load.communicate(timeout=600)
        assert out.startswith("{"), error
        return json.loads(out)

    def restart(self):
        """Every Deployment is restarted under load: no call without an answer, and every pod has finished in time."""
        load = self.bench(60)
        longest = 0.0
        for name in SERVICES:
            longest = max(longest, self.cluster.restart(f"demo-wardgate-{name}"))
        report = self.report(load)
        print(f"# {report['good']} answers, {report['bad']} without, longest stop {longest:.1f} s", flush=True)
        assert report["good"] > 0 and report["bad"] == 0, report

    def chaos(self):
        """Each service is killed under load; afterwards calls are answered again, and no call ran without a record."""
        load = self.bench(60)
        for name in SERVICES:
            pods = self.cluster.of(f"demo-wardgate-{name}")
            self.cluster.lose(pods[0])
            self.cluster.wait_ready()
        report = self.report(load)
        print(f"# {report['good']} answers, without: {report['faults']}", flush=True)
        assert report["good"] > 0, report
        calm = self.report(self.bench(3))
        assert calm["bad"] == 0, calm


def main():
    wanted = sys.argv[1:] or ["install", "restart", "chaos"]
    journeys = Journeys()
    try:
        for name in wanted:
            journey = getattr(journeys, name)
            try:
                journey()
                print(f"ok    {name}: {' '.join(journey.__doc__.split())}", flush=True)
            except Exception as error:  # every fault is a line of its own
                print(f"FAIL  {name}: {error}", flush=True)
                print(journeys.cluster.report(), file=sys.stderr)
    finally:
        journeys.cluster.close()
        journeys.database.close()


if __name__ == "__main__":
    main()
