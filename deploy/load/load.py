"""Load-tests every service separately, all together, and one service with several replicas. Started by deploy/load/run.

    wardgate policy · audit · memory · tool-runner · gateway    processes of their own, mTLS on loopback, PostgreSQL
         ▲                                        ▲
    ghz, one scenario a method           wardgate bench on /mcp      each with the CPU time of the service meanwhile

Rates depend on the machine as much as on Wardgate. Compare requests per CPU-second of a service, or better their ratios.
"""

import argparse
import atexit
import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.request

TICKS = os.sysconf("SC_CLK_TCK")
# The caller and the call, from the hospital demo.
SUBJECT, ROLE, TOOL, ARGUMENTS = "dr.yenji", "Doctor", "get_medical_records", '{"patient_id":"NUGWI"}'
# Each method and its service. Messages are written before they are read.
SCENARIOS = {
    "policy.Authorize": "policy",
    "toolrunner.CallTool": "tool-runner",
    "audit.Append": "audit",
    "memory.AddMessages": "memory",
    "memory.GetContext": "memory",
}
SERVICES = ["policy", "audit", "memory", "tool-runner", "gateway"]
# The service with the largest share of the cost of a call on /mcp. It is run with several replicas under one host name.
SCALED, NAME = "tool-runner", "tool-runner.load.internal"
CONNECTIONS = 16
CALLERS = 1_000


class Process:
    """A `wardgate` process that has reported that it is ready."""

    def __init__(self, log, words, setup=None, **env):
        with open(log, "ab") as errors:
            env = {**{name: value for name, value in os.environ.items() if name != "HOSPITAL_DB_URL"}, **env}
            self.child = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=setup)
        # A load test that fails leaves no process behind.
        atexit.register(self.stop)
        ready = next((line for line in iter(self.child.stdout.readline, "") if line.startswith("ready")), None)
        if not ready:
            raise SystemExit(f"{' '.join(map(str, words[:2]))} did not become ready; see {log}")
        # The first word after `ready` is the URL for clients.
        self.url = next(iter(ready.split()[1:]), "")
        # Reads further output, so that the pipe does not fill.
        threading.Thread(target=self.child.stdout.read, daemon=True).start()

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self):
        self.child.terminate()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise SystemExit(f"process {self.child.pid} did not stop in time") from None

    def kill(self):
        self.child.kill()
        self.child.wait()


def control_callgrind(process, *words):
    """Sends a command to the callgrind that executes the process."""
    # callgrind polls for commands while the process runs, so no ptrace permission is needed.
    words = ["vgdb", f"--pid={process.child.pid}", "--max-invoke-ms=0", "-c", *words]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def make_token(wardgate, data, *caller):
    """Returns a token of the local issuer. `caller` is its options for subject, roles and claims."""
    words = [wardgate, "token", "--data-dir", data, "--ttl", "3h", *caller]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Share:
    """A share of one CPU, enforced by cgroup v1 or v2."""

    def __init__(self, name, percent):
        v1 = pathlib.Path("/sys/fs/cgroup/cpu")
        self.path = (v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")) / name
        self.path.mkdir()
        # The period is short, so that a throttled call does not wait long for the next one.
        period, quota = 20_000, 200 * percent
        if v1.is_dir():
            (self.path / "cpu.cfs_period_us").write_text(str(period))
            (self.path / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self.path / "cpu.max").write_text(f"{quota} {period}")

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        # Only an empty cgroup can be removed. Its process has ended.
        self.path.rmdir()


class System:
    """All services as separate processes, configured as in `deploy/examples/separate`, but on free ports and PostgreSQL. `project`
    is the directory of policies and tools, with environment variables for them. The default is the hospital demo."""

    def __init__(self, arguments, callers=CALLERS, project=None, **env):
        self.project, self.env = project or arguments.root / "deploy/examples/hospital", env
        self.wardgate, self.data = arguments.wardgate, arguments.out / "data"
        self.root, self.database = arguments.root, arguments.database
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(parents=True)
        *ports, self.audit_probes = free_ports(len(SERVICES) + 1)
        self.ports = dict(zip(SERVICES, ports))
        # `up` creates the keys and the database that the tools query.
        self.service("up", "--data-dir", self.data, "--listen", "127.0.0.1:0", "--demo", "hospital").stop()
        self.run("certs", "dev", "--data-dir", self.data)
        self.configure(f"127.0.0.1:{self.ports[SCALED]}")
        one = lambda subject: make_token(self.wardgate, self.data, "--sub", subject, "--role", ROLE)
        token = one(SUBJECT)
        self.token = self.data / "token"
        self.token.write_text(token)
        # Authorization requests alternate between callers, so that the policy service does not answer all from its cache.
        others = [f"{SUBJECT}-{at}" for at in range(callers - 1)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.tokens = self.data / "tokens"
            self.tokens.write_text("\n".join([token, *pool.map(one, others)]))

    def run(self, *words):
        return subprocess.run([self.wardgate, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    def service(self, *words, setup=None, under=(), **env):
        # `up` creates that database, so it must not get its URL.
        if words[0] != "up":
            env = {"HOSPITAL_DB_URL": f"sqlite:{self.data}/hospital.sqlite", **self.env, **env}
        return Process(self.data / f"{words[0]}.log", [*under, self.wardgate, *words], setup, **env)

    def configure(self, scaled, listen="127.0.0.1"):
        """Writes the configuration. `scaled` is the address at which the gateway reaches the replicated service."""
        at = {name: f"https://127.0.0.1:{port}" for name, port in self.ports.items()}

        def section(name, **own):
            certs = {"cert": f"certs/{name}.pem", "key": f"certs/{name}.key", "ca": "certs/ca.pem"}
            return {"listen": f"127.0.0.1:{self.ports[name]}", "tls": certs, **own}

        issuer = {"issuer": "https://issuer.wardgate.internal", "audience": "wardgate", "jwks": {"file": "keys/jwks.json"}}
        links = {"policy": at["policy"], "tool_runner": f"https://{scaled}", "audit": at["audit"], "memory": at["memory"]}
        sections = {
            "telemetry": {"log": "warn"},
            "gateway": section(
                "gateway",
                auth={"issuers": [issuer]},
                limits={"requests_per_minute": 10_000_000},
                links=links,
                session_key_file="keys/session.key",
                store=self.database,
            ),
            # Long enough for the permits that were issued for ghz.
            "policy": section(
                "policy",
                permit_key_file="keys/permit.pem",
                policies=str(self.project / "policies"),
                permit_ttl=300,
                auth={"issuers": [issuer]},
            ),
            "tool_runner": section(
                "tool-runner",
                permit_public_key_files=["keys/permit.pub"],
                pseudonym_key_file="keys/pseudonym.key",
                catalogue=str(self.project / "tools.yaml"),
                store=self.database,
                links={"audit": at["audit"], "memory": at["memory"]},
            ),
            "audit": section(
                "audit",
                mac_key_file="keys/audit-mac.key",
                log_key_file="keys/audit-log.pem",
                details_key_file="keys/audit-details.key",
                store=self.database,
                probes=f"127.0.0.1:{self.audit_probes}",
            ),
            "memory": section(
                "memory", master_key_file="keys/memory.key", store=self.database, links={"policy": at["policy"], "audit": at["audit"]}
            ),
        }
        sections["tool_runner"]["listen"] = f"{listen}:{self.ports[SCALED]}"
        self.config = self.data / f"wardgate-{listen}.yaml"
        # JSON is valid YAML.
        self.config.write_text(json.dumps(sections, indent=2))
        return self.config

    def start(self, name, config=None, **options):
        """Starts a service. `under` is a program that executes it, with its options."""
        return self.service(name, "--config", config or self.config, **options)

    @property
    def mcp(self):
        return f"http://127.0.0.1:{self.ports['gateway']}/mcp"

    def wait_until_ready(self):
        """Waits until the gateway is ready, because it listens before the other services are available."""
        url = f"http://127.0.0.1:{self.ports['gateway']}"
        until = time.monotonic() + 60
        while time.monotonic() < until:
            asked = subprocess.run([self.wardgate, "health", "--url", url], capture_output=True, check=False)
            if asked.returncode == 0:
                return
            time.sleep(0.1)
        raise SystemExit("the gateway did not become ready")

    def bench(self, seconds):
        words = ["bench", "--url", self.mcp, "--token-file", self.token, "--tool", TOOL, "--args", ARGUMENTS]
        words += ["--connections", str(CONNECTIONS), "--warm-up", "1", "--seconds", str(seconds), "--output", "json"]
        # The command fails if calls are refused, for example by an overloaded gateway. The report shows this.
        done = subprocess.run([self.wardgate, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        report = json.loads(done.stdout or "{}")
        if not report.get("good"):
            raise SystemExit(f"no call has a verified answer: {report.get('faults')}")
        latency = report["latency_ms"]
        return {
            "good": report["good"],
            "per_second": report["per_second"],
            "p50_ms": latency["p50"],
            "p99_ms": latency["p99"],
            "without": report["faults"],
        }


def free_ports(count):
    """Free ports below the range that the system uses for outgoing connections."""
    found = []
    for port in range(21_000 + os.getpid() % 9_000, 32_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("0.0.0.0", port))
            found.append(port)
        if len(found) == count:
            return found
    raise SystemExit("no port is free")


def ghz(arguments, scenario, port, seconds, *options):
    file = arguments.root / f"deploy/load/ghz/{scenario}.json"
    words = [arguments.ghz, "--config", file, "--duration", f"{seconds}s", "--format", "json", *options, f"127.0.0.1:{port}"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=arguments.root)
    report = json.loads(done.stdout)
    if report.get("errorDistribution"):
        raise SystemExit(f"{scenario}: {report['errorDistribution']}")
    quantiles = {it["percentage"]: it["latency"] / 1e6 for it in report["latencyDistribution"]}
    return {"good": report["count"], "per_second": report["rps"], "p50_ms": quantiles[50], "p99_ms": quantiles[99]}


def append_records(arguments, port, probes, seconds, *options):
    """Appends records with ghz. ghz does not see an error of one record in a stream of results, so the service's metric is compared."""
    before = durable_records(probes)
    row = ghz(arguments, "audit.Append", port, seconds, *options)
    if (durable := durable_records(probes) - before) < row["good"]:
        raise SystemExit(f"audit.Append: only {durable} of {row['good']} records are durable")
    return row


def durable_records(probes):
    """The number of records that the audit service has made durable since its start, from the port of its metrics."""
    without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with without_proxy.open(f"http://127.0.0.1:{probes}/metrics", timeout=10) as response:
        for line in response.read().decode().splitlines():
            if line.startswith("wardgate_audit_records_total"):
                return int(float(line.split()[-1]))
    return 0


def measured(process, load):
    """The report of `load`, with the requests per second of CPU time."""
    before = process.cpu_seconds()
    row = load()
    row["cpu_seconds"] = process.cpu_seconds() - before
    row["per_cpu_second"] = row["good"] / max(row["cpu_seconds"], 1 / TICKS)
    return row


def each(arguments, system, running):
    """One row per method, and one per service for its part of a call on /mcp."""
    urls = [f"https://127.0.0.1:{system.ports[name]}" for name in ("policy", "tool-runner", "memory")]
    made = [arguments.load_data, *urls, system.data / "certs", system.tokens, TOOL, ARGUMENTS, system.data]
    subprocess.run(made, check=True)
    rows = {}
    for scenario, service in SCENARIOS.items():
        port = system.ports[service]
        if service == "audit":
            load = functools.partial(append_records, arguments, port, system.audit_probes)
        else:
            load = functools.partial(ghz, arguments, scenario, port)
        # Warm-up of connections, caches and statements.
        load(1)
        rows[scenario] = measured(running[service], lambda: load(arguments.seconds))
        show(scenario, rows[scenario])
    system.bench(1)
    before = {name: process.cpu_seconds() for name, process in running.items()}
    row = measured(running["gateway"], lambda: system.bench(arguments.seconds))
    row["cpu_ms_per_call"] = {
        name: 1_000 * (process.cpu_seconds() - before[name]) / row["good"] for name, process in running.items()
    }
    rows["/mcp tools/call"] = row
    show("/mcp tools/call", row)
    print("\na call on /mcp takes of each, CPU ms: ", end="")
    print(", ".join(f"{name} {cost:.2f}" for name, cost in row["cpu_ms_per_call"].items()))
    return rows


def show(name, row):
    print(f"{name:<22}{row['per_second']:>12.0f}{row['p50_ms']:>10.2f}{row['p99_ms']:>10.2f}{row['per_cpu_second']:>16.0f}{without(row)}", flush=True)


def without(row):
    """The failures of a row's calls."""
    return "".join(f"   {count} × {kind}" for kind, count in row.get("without", {}).items())


def scaled(arguments, system, running):
    """Throughput of /mcp with several replicas of one service, each with the same small share of a CPU."""
    hosts = system.data / "hosts"
    print(f"\nreplicas of {SCALED}, each on {arguments.percent} % of a core")
    print(f"{'':<22}{'calls/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'times':>16}")
    rows = {}
    for count in arguments.replicas:
        addresses = [f"127.0.0.{10 + at}" for at in range(count)]
        hosts.write_text("".join(f"{address} {NAME}\n" for address in addresses))
        with contextlib.ExitStack() as started:
            for at, address in enumerate(addresses):
                share = Share(f"wardgate-load-{os.getpid()}-{at}", arguments.percent)
                started.callback(share.close)
                config = system.configure(f"{NAME}:{system.ports[SCALED]}", address)
                started.callback(system.start(SCALED, config, setup=share.join).stop)
            # Only the gateway resolves the host name, with its own hosts file.
            words = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts, system.wardgate]
            gateway = Process(system.data / "gateway.log", [*words, "gateway", "--config", config])
            started.callback(gateway.stop)
            system.wait_until_ready()
            # Warm-up, so that connections to all replicas exist.
            system.bench(3)
            row = rows[count] = measured(gateway, lambda: system.bench(arguments.seconds))
        times = row["per_second"] / rows[arguments.replicas[0]]["per_second"]
        print(f"{count:<22}{row['per_second']:>12.0f}{row['p50_ms']:>10.1f}{row['p99_ms']:>10.1f}{times:>16.2f}{without(row)}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("root", "out", "wardgate", "load-data", "ghz"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--database", required=True, help="URL of a PostgreSQL for all stores")
    parser.add_argument("--seconds", type=int, default=20, help="how long each scenario is measured")
    parser.add_argument("--percent", type=int, default=10, help="share of a core of each replica")
    parser.add_argument("--replicas", type=int, nargs="*", default=[1, 2, 4], help="how many at a time; none: leave it out")
    arguments = parser.parse_args()
    system = System(arguments)
    running, tables = {}, {}
    try:
        for name in SERVICES:
            running[name] = system.start(name)
        system.wait_until_ready()
        print(f"{'':<22}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'/ CPU-second':>16}")
        tables["methods"] = each(arguments, system, running)
        running.pop("gateway").stop()
        running.pop(SCALED).stop()
        if not arguments.replicas:
            pass
        elif os.geteuid() != 0:
            print("\nreplicas are left out: shares of a processor and names of one process need root")
        else:
            tables["replicas"] = scaled(arguments, system, running)
    finally:
        for process in running.values():
            process.stop()
    file = arguments.out / "load.json"
    file.write_text(json.dumps(tables, indent=2) + "\n")
    print(f"\nas JSON: {file}")


if __name__ == "__main__":
    main()
