"""Calls tools directly at their MCP server and through Wardgate in turn, with the same load. Started by deploy/load/ratio.

    wardgate bench ─▶ rmcp server                                      direct
    wardgate bench ─▶ wardgate up: token, policy, permit, record ─▶ the same server      governed
    wardgate bench ─▶ gateway ─▶ policy, tool-runner, audit over mTLS ─▶ the same server      separate, on PostgreSQL
    wardgate bench ─▶ wardgate up ─▶ SQLite: 10 rows; 256 KiB of rows in clear, and masked

Each round measures all of them, in alternating order. The tables show medians. Rates depend on the machine as much as on
Wardgate: compare the ratios. It is an error if the number of records differs from the number of governed calls.
"""

import argparse
import json
import pathlib
import shutil
import sqlite3
import statistics
import subprocess
import threading
import time

from load import SERVICES, Process, System, make_token

TOOL, ARGUMENTS = "greet", '{"name":"Ada"}'
# The number of connections with which separate services and a result of ten rows are measured, and that of results of 256 KiB.
CONNECTIONS, LARGE_CONNECTIONS = 16, 4
# The number of connections with which the memory is measured.
MANY_CONNECTIONS = 512
STARTS = 5
# As many rows as a result can have, together 256 KiB of JSON.
ROWS, RESULT_BYTES = 1_000, 256 * 1024


class Target:
    """A server under load, and the processes whose CPU time is measured."""

    def __init__(self, wardgate, name, url, tool, options, processes, tool_arguments=ARGUMENTS):
        self.wardgate, self.name, self.url, self.tool = wardgate, name, url, tool
        self.options, self.processes, self.tool_arguments = options, processes, tool_arguments
        # The number of calls that were answered.
        self.good = 0

    def cpu_seconds(self):
        return sum(process.cpu_seconds() for process in self.processes)

    def run(self, connections, seconds):
        self.load(connections, 1)
        before = self.cpu_seconds()
        report = self.load(connections, seconds)
        return {
            "per_second": report["per_second"],
            "cpu_micros": 1e6 * (self.cpu_seconds() - before) / report["good"],
            "p50_micros": 1e3 * report["latency_ms"]["p50"],
            "p99_micros": 1e3 * report["latency_ms"]["p99"],
        }

    def load(self, connections, seconds):
        """Calls the tool over so many connections, and returns the report."""
        words = [self.wardgate, "bench", "--url", self.url, "--tool", self.tool, "--args", self.tool_arguments, "--output", "json"]
        words += ["--connections", str(connections), "--warm-up", "0", "--seconds", str(seconds), *self.options]
        report = json.loads(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)
        self.good += report["good"]
        return report


def median(rounds):
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def resident_mib(process):
    lines = pathlib.Path(f"/proc/{process.child.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def measure_memory(target, process, connections, seconds):
    """Calls the tool for so long, and returns the largest memory in MiB, and its growth in MiB per minute without the first fifth."""
    samples, is_loaded = [], threading.Event()

    def sample():
        while not is_loaded.wait(0.1):
            samples.append((time.monotonic() / 60, resident_mib(process)))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        target.load(connections, seconds)
    finally:
        is_loaded.set()
        sampler.join()
    later = samples[len(samples) // 5 :]
    return max(memory for _, memory in samples), statistics.linear_regression(*zip(*later)).slope


def measure_start(arguments):
    """The seconds until a process with the demo is ready, median of several starts after the first, which creates its data."""
    data, times = arguments.out / "start-data", []
    shutil.rmtree(data, ignore_errors=True)
    words = [arguments.wardgate, "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--demo", "hospital"]
    for _ in range(1 + STARTS):
        begin = time.monotonic()
        process = Process(arguments.out / "start.log", words)
        times.append(time.monotonic() - begin)
        process.stop()
    return statistics.median(times[1:])


def check_records(data, calls):
    """Fails unless there are as many records of calls of the tool as there were calls."""
    with sqlite3.connect(f"file:{data}/audit.sqlite?mode=ro", uri=True) as database:
        [(records,)] = database.execute("SELECT count(*) FROM record WHERE event = 'outcome' AND tool = ?", (f"echo__{TOOL}",))
    database.close()
    if records != calls:
        raise SystemExit(f"{calls} calls were answered, but there are {records} records")


def write_token(wardgate, data, role):
    """Creates a token, and returns its file."""
    file = data / f"token-{role}"
    file.write_text(make_token(wardgate, data, "--sub", "ada", "--role", role))
    return file


def start_project(arguments, name, **env):
    """Starts one process with the project of this directory, and returns it and its data directory."""
    data = arguments.out / f"{name}-data"
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(pathlib.Path(__file__).parent / name, data / name)
    if name == "rows":
        create_rows(data / name / "rows.sqlite")
    words = [arguments.wardgate, "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--config", data / name / "wardgate.yaml"]
    return Process(arguments.out / f"{name}.log", words, **env), data


def create_rows(file):
    """Creates the table of the tools of rows/tools.yaml."""
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, phone TEXT, note TEXT)")
        # The rest of a row of JSON has 75 bytes.
        note = "n" * (RESULT_BYTES // ROWS - 75)
        rows = [(at, f"Ada Person {at:04}", f"+1 206 555 {at:04}", note) for at in range(ROWS)]
        database.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)
    database.close()


def create_separate(arguments, echo_url):
    """Configures the services as separate processes, with the project `echo`."""
    project = arguments.out / "echo-project"
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(pathlib.Path(__file__).parent / "echo", project)
    return System(arguments, callers=1, project=project, ECHO_URL=echo_url)


def start_separate(arguments, echo_url):
    """Starts the services as separate processes, and returns them."""
    system = create_separate(arguments, echo_url)
    running = [system.start(name) for name in SERVICES]
    system.wait_until_ready()
    return system, running


def measure(arguments, targets, connections):
    """The medians of each target, by name."""
    rounds = {target: [] for target in targets}
    for number in range(arguments.rounds):
        for target in targets if number % 2 == 0 else reversed(targets):
            rounds[target].append(target.run(connections, arguments.seconds))
        print(f"{connections} connections, round {number + 1} of {arguments.rounds}", flush=True)
    return {target.name: median(found) for target, found in rounds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, required=True, help="directory of the repository")
    parser.add_argument("--wardgate", type=pathlib.Path, required=True, help="the binary under test")
    parser.add_argument("--fixture", type=pathlib.Path, required=True, help="the rmcp server")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for data and the figures as JSON")
    parser.add_argument("--database", help="URL of a PostgreSQL for the separate services; without it, they are left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="seconds of each measurement")
    parser.add_argument("--soak", type=int, default=60, help="seconds of load during which the growth of the memory is measured")
    parser.add_argument("--connections", default="1,16,64", help="numbers of connections, with commas")
    parser.add_argument("--era", choices=["modern", "legacy"], default="modern", help="version of the protocol of governed calls, as of `wardgate bench`")
    arguments = parser.parse_args()
    wardgate, era = arguments.wardgate, ["--era", arguments.era]

    server = Process(arguments.out / "server.log", [arguments.fixture, "--json"])
    gateway, data = start_project(arguments, "echo", ECHO_URL=server.url)
    idle = resident_mib(gateway)
    direct = Target(wardgate, "direct", server.url, TOOL, ["--direct", "--token", "none"], [server])
    options = [*era, "--token-file", write_token(wardgate, data, "Caller")]
    governed = Target(wardgate, "governed", gateway.url, f"echo__{TOOL}", options, [gateway])
    figures = {}
    for connections in map(int, arguments.connections.split(",")):
        figures[connections] = measure(arguments, [direct, governed], connections)
    show(figures)
    loaded, growth = measure_memory(governed, gateway, CONNECTIONS, arguments.soak)
    many, _ = measure_memory(governed, gateway, MANY_CONNECTIONS, arguments.seconds)
    check_records(data, governed.good)
    gateway.stop()
    print(f"memory: {idle:.0f} MiB idle; {loaded:.0f} with {CONNECTIONS} connections, growing by {growth:.2f} per minute in {arguments.soak} s; {many:.0f} with {MANY_CONNECTIONS} connections")
    print(f"records: {governed.good}, as many as calls")
    print(f"ready after {measure_start(arguments):.2f} s with the demo")

    rows, data = start_project(arguments, "rows")

    def reading(name, tool, role):
        options = [*era, "--token-file", write_token(wardgate, data, role)]
        return Target(wardgate, name, rows.url, tool, options, [rows], "{}")

    others, running = [direct, reading("10 rows", "ten_rows", "Caller")], []
    large = [reading("256 KiB", "all_rows", "Caller"), reading("256 KiB, masked", "all_rows", "MaskedCaller")]
    if arguments.database:
        system, running = start_separate(arguments, server.url)
        options = [*era, "--token-file", write_token(wardgate, system.data, "Caller")]
        others.append(Target(wardgate, "separate", f"http://127.0.0.1:{system.ports['gateway']}", f"echo__{TOOL}", options, running))
    figures["others"] = measure(arguments, others, CONNECTIONS) | measure(arguments, large, LARGE_CONNECTIONS)
    show_others(figures["others"])
    (arguments.out / "ratio.json").write_text(json.dumps(figures, indent=2))
    for process in (rows, *running, server):
        process.stop()


def show_others(figures):
    direct, clear, masked = figures["direct"], figures["256 KiB"], figures["256 KiB, masked"]
    print("\n                      CPU µs   ÷ direct")
    for name, figure in figures.items():
        print(f"{name:<16} {figure['cpu_micros']:>11.0f} {figure['cpu_micros'] / direct['cpu_micros']:>10.2f}")
    print(f"throughput of masked ÷ unmasked 256 KiB: {masked['per_second'] / clear['per_second']:.2f}")


def show(figures):
    print("\nconnections   calls/s direct · governed   ratio   CPU µs direct · governed   ratio   p50 ratio   governed p99 ÷ p50")
    for connections, figure in figures.items():
        direct, governed = figure["direct"], figure["governed"]
        ratio = lambda key: governed[key] / max(direct[key], 1e-9)
        print(
            f"{connections:>11}   {direct['per_second']:>14.0f} · {governed['per_second']:<8.0f}   {ratio('per_second'):>5.2f}"
            f"   {direct['cpu_micros']:>13.0f} · {governed['cpu_micros']:<8.0f}   {ratio('cpu_micros'):>5.1f}"
            f"   {ratio('p50_micros'):>9.1f}   {governed['p99_micros'] / governed['p50_micros']:>18.1f}"
        )


if __name__ == "__main__":
    main()
