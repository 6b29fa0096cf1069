"""Calls one tool directly at its MCP server and through Wardgate in turn, with the same load. Started by deploy/load/ratio.

    wardgate bench ─▶ rmcp server                                      direct
    wardgate bench ─▶ wardgate up: token, policy, permit, record ─▶ the same server      governed

Each round measures both, in alternating order. The table shows medians. Rates depend on the machine as much as on
Wardgate: compare the ratios.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess

from load import Process

TOOL, ARGUMENTS = "greet", '{"name":"Ada"}'


class Target:
    """A server under load, and the processes whose CPU time is measured."""

    def __init__(self, wardgate, name, url, tool, options, processes):
        self.wardgate, self.name, self.url, self.tool = wardgate, name, url, tool
        self.options, self.processes = options, processes

    def cpu_seconds(self):
        return sum(process.cpu_seconds() for process in self.processes)

    def run(self, connections, seconds):
        words = [self.wardgate, "bench", "--url", self.url, "--tool", self.tool, "--args", ARGUMENTS, "--output", "json"]
        words += ["--connections", str(connections), *self.options]
        subprocess.run([*words, "--warm-up", "0", "--seconds", "1"], stdout=subprocess.DEVNULL, check=True)
        before = self.cpu_seconds()
        done = subprocess.run([*words, "--warm-up", "0", "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True, check=True)
        report = json.loads(done.stdout)
        return {
            "per_second": report["per_second"],
            "cpu_micros": 1e6 * (self.cpu_seconds() - before) / report["good"],
            "p50_micros": 1e3 * report["latency_ms"]["p50"],
            "p99_micros": 1e3 * report["latency_ms"]["p99"],
        }


def median(rounds):
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def resident_mib(process):
    lines = pathlib.Path(f"/proc/{process.child.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wardgate", type=pathlib.Path, required=True, help="the binary under test")
    parser.add_argument("--fixture", type=pathlib.Path, required=True, help="the rmcp server")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for data and the figures as JSON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="seconds of each measurement")
    parser.add_argument("--connections", default="1,16,64", help="numbers of connections, with commas")
    parser.add_argument("--era", choices=["modern", "legacy"], default="modern", help="version of the protocol, as of `wardgate bench`")
    arguments = parser.parse_args()
    here = pathlib.Path(__file__).parent
    data = arguments.out / "ratio-data"
    shutil.rmtree(data, ignore_errors=True)
    shutil.copytree(here / "echo", data / "echo")

    server = Process(data / "server.log", [arguments.fixture, "--json"])
    words = [arguments.wardgate, "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--config", data / "echo/wardgate.yaml"]
    gateway = Process(data / "up.log", words, ECHO_URL=server.url)
    idle = resident_mib(gateway)
    token = data / "token"
    words = [arguments.wardgate, "token", "--data-dir", data, "--sub", "ada", "--role", "Caller", "--ttl", "3h"]
    token.write_text(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)

    era = ["--era", arguments.era]
    direct = Target(arguments.wardgate, "direct", server.url, TOOL, [*era, "--direct", "--token", "none"], [server])
    options = [*era, "--token-file", token]
    governed = Target(arguments.wardgate, "governed", gateway.url, f"echo__{TOOL}", options, [gateway])
    figures = {}
    for connections in map(int, arguments.connections.split(",")):
        rounds = {direct: [], governed: []}
        for number in range(arguments.rounds):
            for target in (direct, governed) if number % 2 == 0 else (governed, direct):
                rounds[target].append(target.run(connections, arguments.seconds))
            print(f"{connections} connections, round {number + 1} of {arguments.rounds}", flush=True)
        figures[connections] = {target.name: median(found) for target, found in rounds.items()}
    show(figures, idle, resident_mib(gateway))
    (arguments.out / "ratio.json").write_text(json.dumps(figures, indent=2))
    for process in (gateway, server):
        process.stop()


def show(figures, idle, loaded):
    print("\nconnections   calls/s direct · governed   ratio   CPU µs direct · governed   ratio   p50 ratio   governed p99 ÷ p50")
    for connections, figure in figures.items():
        direct, governed = figure["direct"], figure["governed"]
        ratio = lambda key: governed[key] / max(direct[key], 1e-9)
        print(
            f"{connections:>11}   {direct['per_second']:>14.0f} · {governed['per_second']:<8.0f}   {ratio('per_second'):>5.2f}"
            f"   {direct['cpu_micros']:>13.0f} · {governed['cpu_micros']:<8.0f}   {ratio('cpu_micros'):>5.1f}"
            f"   {ratio('p50_micros'):>9.1f}   {governed['p99_micros'] / governed['p50_micros']:>18.1f}"
        )
    print(f"memory of Wardgate: {idle:.0f} MiB idle, {loaded:.0f} MiB after the load")


if __name__ == "__main__":
    main()
