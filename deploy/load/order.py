"""Prints the order of functions in a release. Started by deploy/release.

Functions that a process executes when it starts, and then those that calls execute, come first, so that a process needs few memory
pages of code. The demo in one process, and each service in its own, are started under callgrind, which also sees functions of C
libraries, of the standard library, and the parts of functions that the compiler separated. The counts of calls are those of
deploy/load/train.py.
"""

import argparse
import bisect
import pathlib
import re
import subprocess

import ratio
from load import SERVICES, Process, control_callgrind


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, required=True, help="directory of the repository")
    parser.add_argument("--wardgate", type=pathlib.Path, required=True, help="the release with its symbols")
    parser.add_argument("--fixture", type=pathlib.Path, required=True, help="the rmcp server")
    parser.add_argument("--profile", type=pathlib.Path, required=True, help="the counts of calls")
    parser.add_argument("--llvm", type=pathlib.Path, required=True, help="directory of llvm-nm and llvm-profdata")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory for data")
    parser.add_argument("--database", required=True, help="URL of a PostgreSQL for all stores")
    arguments = parser.parse_args()
    counts = read_counts(arguments)
    addresses, symbols = read_symbols(arguments)
    starts = [read_executed(arguments, file, addresses, symbols) for file in run_starts(arguments)]
    # Functions that the same processes execute are adjacent, and those of most processes come first. Of the others, those that
    # calls execute most often come first.
    keys = {}
    for symbol in {*counts, *set().union(*starts)}:
        users = tuple(at for at, start in enumerate(starts) if symbol in start)
        if users or counts.get(symbol):
            keys[symbol] = (-len(users), users, -counts.get(symbol, 0), symbol)
    print("\n".join(sorted(keys, key=keys.get)))


def read_counts(arguments):
    """Returns the largest count of the blocks of each function, by its symbol."""
    words = [arguments.llvm / "llvm-profdata", "show", "--all-functions", "--counts", arguments.profile]
    counts, symbol = {}, None
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as shown:
        for line in shown.stdout:
            if line.startswith("  ") and not line.startswith("   ") and line.endswith(":\n"):
                # The name of a function that other crates do not see has the name of its file in front.
                symbol = line.strip().removesuffix(":").rpartition(";")[2]
            elif line.startswith("    Block counts: ["):
                blocks = line.strip().removeprefix("Block counts: [").removesuffix("]")
                counts[symbol] = max(counts.get(symbol, 0), *map(int, blocks.split(", ")), 0)
    if shown.returncode or not counts:
        raise SystemExit(f"{arguments.profile} has no counts")
    return counts


def run_starts(arguments):
    """Starts the demo, and each service beside the others, until they are ready, and returns a file of executed code for each."""
    out = arguments.out
    demo = [arguments.wardgate, "up", "--data-dir", out / "demo-data", "--listen", "127.0.0.1:0", "--demo", "hospital"]
    files = [stop_traced(Process(out / "demo.log", [*trace(out / "demo"), *demo]), out / "demo")]
    server = Process(out / "server.log", [arguments.fixture, "--json"])
    system = ratio.create_separate(arguments, server.url)
    for name in SERVICES:
        others = [system.start(other) for other in SERVICES if other != name]
        traced = system.start(name, under=trace(out / name))
        system.wait_until_ready()
        files.append(stop_traced(traced, out / name))
        for process in others:
            process.kill()
    server.stop()
    return files


def trace(file):
    """The program that executes another, and writes what was executed to a file."""
    # Addresses instead of lines, because the separated parts of a function have the name of the function.
    options = ["--dump-instr=yes", "--dump-line=no", "--compress-pos=no", f"--callgrind-out-file={file}"]
    return ["valgrind", "--tool=callgrind", *options]


def stop_traced(process, file):
    """Ends a traced process without executing the code of its shutdown, and returns the file of its first and only dump."""
    control_callgrind(process, "dump")
    process.kill()
    return file.with_name(f"{file.name}.1")


def read_symbols(arguments):
    """Returns the addresses of all functions in order, and their symbols."""
    words = [arguments.llvm / "llvm-nm", "--defined-only", "--numeric-sort", arguments.wardgate]
    shown = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = [line.split() for line in shown.splitlines()]
    found = [(int(address, 16), symbol) for address, kind, symbol in found if kind in "tTwW"]
    if not found:
        raise SystemExit(f"{arguments.wardgate} has no symbols")
    return zip(*found)


def read_executed(arguments, file, addresses, symbols):
    """Returns the symbols of the functions of the release whose code was executed, from a dump of callgrind."""
    # An object is named where it occurs first, by `ob` of a function or by `cob` of a called one, and then only numbered.
    named = re.compile(r"c?ob=\((\d+)\)(?: (.*))?")
    numbers, is_release, executed = {}, False, set()
    for line in file.read_text(errors="replace").splitlines():
        if match := named.match(line):
            number, name = match.groups()
            numbers.setdefault(number, name)
            if line.startswith("ob="):
                is_release = numbers[number] == str(arguments.wardgate)
        elif is_release and line.startswith("0x"):
            executed.add(int(line.split()[0], 16))
    if not executed:
        raise SystemExit(f"{file} has no code of {arguments.wardgate}")
    return {symbols[bisect.bisect(addresses, address) - 1] for address in executed}


if __name__ == "__main__":
    main()
